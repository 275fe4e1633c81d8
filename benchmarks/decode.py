"""Decoding speed of every runtime, on one model and one text: `python -m benchmarks.decode --help`.

Each runtime is a process of its own that translates the text whole, from strings to strings; the
processes take turns, pass by pass, so that a slow minute of the machine strikes all alike.
"""

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from keras_transformer.cli import main as keras_transformer
from keras_transformer.model_directory import ModelDirectory

#: Name in the table -> runtime and options of its translator.
RUNTIMES = {
    "Keras generate": ("keras", {}),
    "SavedModel": ("saved_model", {}),
    "ONNX float32": ("onnx", {}),
    "CTranslate2 float32": ("ctranslate2", {"compute_type": "float32"}),
    "CTranslate2 int8": ("ctranslate2", {"compute_type": "int8"}),
}
PEER = "CTranslate2"


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a finished model directory")
    parser.add_argument("--source", help="text to translate, one sentence a line; default: 500 held-out numbers")
    parser.add_argument("--reference", help="its translation, for BLEU; goes with --source")
    parser.add_argument("--beams", default="1,4", help="beam sizes")
    parser.add_argument("--batches", default="32,8,1", help="batch sizes")
    parser.add_argument("--passes", type=int, default=5, help="passes over the text, of which the median counts")
    options = parser.parse_args()
    if options.reference and not options.source:
        parser.error("--reference goes with --source")
    try:
        ModelDirectory(options.directory).require_finished()
    except ValueError as error:
        parser.error(str(error))
    lines, reference = texts(options.source, options.reference)
    for beam_size in map(int, options.beams.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            directory = exported(options.directory, Path(folder) / "model", beam_size)
            compare(directory, lines, reference, beam_size, options)


def texts(source, reference):
    """The text and, if there is one, its translation."""
    if source is None:
        from keras_transformer.training.config import DataConfig
        from keras_transformer.training.datasets import load_corpus

        pairs = load_corpus(DataConfig(validation_split="test")).validation.take(500).as_numpy_iterator()
        return tuple([line.decode() for line in side] for side in zip(*pairs, strict=True))
    source, reference = (path and Path(path).read_text(encoding="utf-8").splitlines() for path in (source, reference))
    return source, reference


def exported(directory, copy, beam_size):
    """A copy of the model directory with all exports of one beam size, without length penalty: there all agree."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("checkpoints", "logs", "export"))
    search = [f"--beam_size={beam_size}", "--n_best=1", "--length_penalty=0"]
    if keras_transformer(["export", str(copy), "--format=saved_model,onnx,ctranslate2", *search]):
        sys.exit(f"The exports of beam {beam_size} failed")
    return copy


def compare(directory, lines, reference, beam_size, options):
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(directory, beam_size, *RUNTIMES[name])) for name in RUNTIMES}
        for batch_size in map(int, options.batches.split(",")):
            text = lines if batch_size > 1 else lines[:: max(len(lines) // 200, 1)]
            results = {name: [] for name in workers}
            for number in range(options.passes + 1):
                for name, worker in workers.items():
                    result = worker.translate(text, batch_size)
                    if number:  # The first pass warms up.
                        results[name].append(result)
            scored = reference if len(text) == len(lines) else None
            show(f"beam {beam_size}, batch {batch_size}, {len(text)} sentences", text, results, workers, scored)


def show(title, lines, results, workers, reference):
    from rich.console import Console
    from rich.table import Table

    seconds = {name: statistics.median(result["seconds"] for result in passes) for name, passes in results.items()}
    best = min(taken for name, taken in seconds.items() if name.startswith(PEER))
    table = Table(title=title)
    for heading in (
        "runtime",
        "sentences/s",
        "subwords/s",
        f"of best {PEER}",
        "load s",
        "memory MiB",
        "size MiB",
        "BLEU",
    ):
        table.add_column(heading, justify="right" if heading != "runtime" else "left")
    for name, passes in results.items():
        last, time_taken = passes[-1], seconds[name]
        table.add_row(
            name,
            f"{len(lines) / time_taken:,.1f}",
            f"{last['subwords'] / time_taken:,.0f}",
            f"{best / time_taken:.2f}",
            f"{workers[name].load_seconds:.1f}",
            f"{last['memory']:,.0f}",
            f"{workers[name].size:.1f}",
            f"{bleu(last['texts'], reference):.2f}" if reference else "",
        )
    Console(width=120).print(table)


def bleu(texts, reference):
    import sacrebleu

    return sacrebleu.corpus_bleu(texts, [reference]).score


class Worker:
    """A process that holds one runtime."""

    def __init__(self, directory, beam_size, runtime, translator_options):
        export = directory / "export" / runtime
        files = [directory / "model.keras"] if runtime == "keras" else export.rglob("*")
        if runtime == "onnx":
            files = [export / "model.onnx"]
        self.size = sum(file.stat().st_size for file in files if file.is_file()) / 2**20
        arguments = json.dumps([str(directory), beam_size, runtime, translator_options])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.decode_worker", arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.load_seconds = self._answer()["seconds"]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._process.stdin.close()
        self._process.wait()

    def translate(self, lines, batch_size):
        print(json.dumps([lines, batch_size]), file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self._process.args)} ended with {self._process.wait()}")
        return json.loads(line)


if __name__ == "__main__":
    main()
