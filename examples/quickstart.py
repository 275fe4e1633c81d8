"""Trains on `number_words`, exports, and translates with every runtime.

python examples/quickstart.py runs/quickstart
"""

import io
import itertools
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from keras_transformer.cli import main as keras_transformer
from keras_transformer.evaluation import evaluate
from keras_transformer.storage import ModelDirectory
from keras_transformer.training import DataConfig, load_corpus
from keras_transformer.translate import available_runtimes, load_translator

#: File in the model directory with a picture of the output.
PICTURE = "quickstart.svg"
#: Width of the picture, and of the output in a file.
_WIDTH = 150

RECIPE = [
    "--dataset=number_words/en_de",
    "--tokenizer.vocab_size=480",
    "--tokenizer.sample_size=5000",
    "--model.preset=tiny",
    "--tokens_per_batch=2048",
    "--recipe.epochs=3",
    "--recipe.warmup_steps=400",
    "--recipe.peak_learning_rate=0.002",
]


def main(output: str) -> int:
    """Trains a model unless `output` contains a finished one, exports it, and shows translations of all runtimes."""
    directory = ModelDirectory(output)
    started = time.time()
    if not directory.model_file.exists():
        status = keras_transformer(["train", f"--output={output}", *RECIPE])
        if status:
            return status
    trained = time.time()
    for options in (["--format=saved_model,onnx,ctranslate2"], ["--format=onnx", "--quantize=int8"]):
        status = keras_transformer(["export", output, *options])
        if status:
            return status
    source, reference = _held_out(500)
    scores = evaluate(load_translator(output), source, reference)
    lines = source[:10]
    translations = {
        runtime: [translation.text for translation in load_translator(output, runtime).translate(lines)]
        for runtime in available_runtimes(output)
    }
    seconds = trained - started, time.time() - trained
    picture = Console(width=_WIDTH, record=True, file=io.StringIO())
    for console in (Console(width=None if sys.stdout.isatty() else _WIDTH), picture):
        report(console, directory, lines, translations, scores, seconds)
    picture.save_svg(str(directory.path / PICTURE), title="make quickstart")
    return 0 if scores.exact_match >= 0.95 else 1


def _held_out(count):
    pairs = itertools.islice(load_corpus(DataConfig(validation_split="test")).validation, count)
    source, target = zip(*pairs, strict=True)
    return list(source), list(target)


def report(console, directory, lines, translations, scores, seconds):
    """Prints a table with one row per number, and more rows if runtimes differ, and then the results.

    Args:
        console: where to print.
        directory: the model directory.
        lines: numbers that were translated.
        translations: runtime -> translations of the lines.
        scores: scores of more numbers.
        seconds: duration of the training, and of the rest.
    """
    table = Table("held-out number", "translation", "given by", box=SIMPLE_HEAD)
    for line, *found in zip(lines, *translations.values(), strict=True):
        for text, names in _grouped(list(translations), found).items():
            table.add_row(line, text, _describe(names, list(translations)))
            line = ""
    console.print(table)
    console.print(f"runtimes: {', '.join(translations)}", soft_wrap=True)
    console.print(f"\nexact match on {scores.sentences} held-out numbers: {scores.exact_match:.1%}")
    console.print(f"training took {seconds[0]:.0f} s, the rest {seconds[1]:.0f} s\n")
    for what, path in (
        ("model", directory.model_file),
        ("exports", directory.export),
        ("verification", directory.verification_file),
        ("TensorBoard", directory.logs),
        ("this picture", directory.path / PICTURE),
    ):
        console.print(f"{what:14}{path}")


def _describe(names, runtimes):
    others = [runtime for runtime in runtimes if runtime not in names]
    if len(others) >= len(names):
        return ", ".join(names)
    return f"all but {', '.join(others)}" if others else f"all {len(runtimes)}"


def _grouped(runtimes, texts):
    """The runtimes by translation, with the most frequent translation first."""
    groups = {}
    for runtime, text in zip(runtimes, texts, strict=True):
        groups.setdefault(text, []).append(runtime)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart"))
