"""The whole road in one go: train on `number_words`, export, translate with every runtime side by side.

python examples/quickstart.py runs/quickstart
"""

import itertools
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from rich.console import Console
from rich.table import Table

from keras_transformer.cli import main as keras_transformer
from keras_transformer.export import load_translator
from keras_transformer.export.load import available_runtimes
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.training.data_config import DataConfig
from keras_transformer.training.datasets import load_corpus
from keras_transformer.training.evaluate import evaluate

CONSOLE = Console(width=None if sys.stdout.isatty() else 120, record=True)

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
    """Trains unless a finished model lies there, then exports, scores and shows."""
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
    runtimes = available_runtimes(output)
    translations = [load_translator(output, runtime).translate(lines) for runtime in runtimes]
    table = Table(show_lines=True)
    for heading in ("held-out number", *runtimes):
        table.add_column(heading, overflow="fold")
    for line, *cells in zip(lines, *translations, strict=True):
        table.add_row(line, *(cell.text for cell in cells))
    CONSOLE.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "runs/quickstart"))
