"""Trains on `number_words`, exports, and translates with every runtime.

python examples/quickstart.py runs/quickstart
"""

import itertools
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from keras_transformer.cli import main as keras_transformer
from keras_transformer.export import load_translator
from keras_transformer.export.load import available_runtimes
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.text.evaluation import evaluate
from keras_transformer.training.data_config import DataConfig
from keras_transformer.training.datasets import load_corpus

CONSOLE = Console(width=None if sys.stdout.isatty() else 150, record=True)

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
    _show(output, source[:10])
    CONSOLE.print(f"\nexact match on {scores.sentences} held-out numbers: {scores.exact_match:.1%}")
    CONSOLE.print(f"training took {trained - started:.0f} s, the rest {time.time() - trained:.0f} s\n")
    for what, path in (
        ("model", directory.model_file),
        ("exports", directory.export),
        ("verification", directory.verification_file),
        ("TensorBoard", directory.logs),
    ):
        CONSOLE.print(f"{what:14}{path}")
    return 0 if scores.exact_match >= 0.95 else 1


def _held_out(count):
    pairs = itertools.islice(load_corpus(DataConfig(validation_split="test")).validation, count)
    source, target = zip(*pairs, strict=True)
    return list(source), list(target)


def _show(output, lines):
    """Prints a table with one row per number, and more rows if runtimes differ."""
    runtimes = available_runtimes(output)
    translations = [load_translator(output, runtime).translate(lines) for runtime in runtimes]
    table = Table("held-out number", "translation", "given by", box=SIMPLE_HEAD)
    for line, *found in zip(lines, *translations, strict=True):
        for text, names in _grouped(runtimes, [translation.text for translation in found]).items():
            table.add_row(line, text, _describe(names, runtimes))
            line = ""
    CONSOLE.print(table)
    CONSOLE.print(f"runtimes: {', '.join(runtimes)}", soft_wrap=True)


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
