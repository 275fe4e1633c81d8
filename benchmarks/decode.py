"""Decoding speed of every runtime, with the same model and text: `python -m benchmarks.decode --help`.

Each runtime is a separate process that translates the whole text, from strings to strings. The processes take turns
after each pass, so that varying load of the machine affects all of them equally. The benchmark exports the model
without a length penalty, because the searches of all runtimes agree then.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.worker import Worker
from keras_transformer.decoding import BeamSearch
from keras_transformer.storage.model_directory import ModelDirectory

#: Runtime and translator options for each row of the table.
RUNTIMES = {
    "Keras generate": ("keras", {}),
    "SavedModel": ("saved_model", {}),
    "ONNX float32": ("onnx", {}),
    "ONNX int8": ("onnx_int8", {}),
    "CTranslate2 float32": ("ctranslate2", {"compute_type": "float32"}),
    "CTranslate2 int8": ("ctranslate2", {"compute_type": "int8"}),
}
PEER = "CTranslate2"
HEADINGS = (
    "sentences/s",
    "subwords/s",
    f"speed / best {PEER}",
    "load s",
    "memory MiB",
    "model MiB",
    "chrF",
    "exact match",
    "BLEU",
)


def main():
    options = parsed()
    lines, reference = texts(options.source, options.reference)
    for beam_size in options.beams:
        if options.batches:
            search = BeamSearch(beam_size=beam_size, length_penalty=0.0)
            with workers(options, search) as running:
                for batch_size in options.batches:
                    text = lines if batch_size > 1 else lines[:: max(len(lines) // 200, 1)]
                    results = measure(running, text, batch_size, options.passes, options.requests)
                    scored = reference if len(text) == len(lines) else None
                    show(f"beam {beam_size}, batch {batch_size}, {len(text)} sentences", text, results, running, scored)
        for steps in options.steps:
            text, length = equally_long(options.directory, lines)
            search = BeamSearch(beam_size=beam_size, length_penalty=0.0, min_length=steps, extra_length=steps - length)
            with workers(options, search) as running:
                results = measure(running, text, len(text), options.passes)
                show(f"beam {beam_size}, {steps} forced steps, batch {len(text)}", text, results, running)


def parsed():
    def numbers(text):
        return [int(number) for number in text.split(",") if number]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a finished model directory")
    parser.add_argument("--source", help="text to translate, one sentence per line; default: 500 held-out numbers")
    parser.add_argument("--reference", help="translation of --source, for chrF, exact match and BLEU")
    parser.add_argument("--beams", type=numbers, default="1,4", help="beam sizes")
    parser.add_argument("--batches", type=numbers, default="32,8,1", help="batch sizes")
    requests = "send each batch by itself and wait for the answer; parallel batches then share its sentences"
    parser.add_argument("--requests", action="store_true", help=requests)
    parser.add_argument("--steps", type=numbers, default="", help="forced lengths, such as 16,64,256; at least 16")
    parser.add_argument("--passes", type=int, default=5, help="passes over the text; the table shows the median")
    parser.add_argument(
        "--threads", type=int, default=0, help="threads per batch; 0: all cores, divided among the parallel batches"
    )
    parser.add_argument("--parallel_batches", type=int, default=1, help="batches at a time")
    options = parser.parse_args()
    if options.reference and not options.source:
        parser.error("--reference requires --source")
    if any(steps < 16 for steps in options.steps):
        parser.error("--steps must be at least 16")
    try:
        ModelDirectory(options.directory).require_finished()
    except ValueError as error:
        parser.error(str(error))
    return options


def texts(source, reference):
    """The source lines, and the reference lines or `None`. Ends the program with status 2 if they cannot be used."""
    from keras_transformer.text.files import read_lines

    if source is not None:
        try:
            lines, translations = read_lines(source), read_lines(reference) if reference else None
            if translations is not None and len(translations) != len(lines):
                raise ValueError(f"{source} has {len(lines)} lines, but {reference} has {len(translations)}")
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        return lines, translations
    from keras_transformer.training.config import DataConfig
    from keras_transformer.training.datasets import load_corpus

    pairs = itertools.islice(load_corpus(DataConfig(validation_split="test")).validation, 500)
    return tuple(map(list, zip(*pairs, strict=True)))


def equally_long(directory, lines, count=32):
    """Lines with the same number of tokens, and that number: the most frequent below 16, including the end token."""
    from keras_transformer.storage.tokenizers import load_tokenizers

    lengths = [len(ids) for ids in load_tokenizers(ModelDirectory(directory))[0].encode(lines)]
    length, _ = Counter(length for length in lengths if 1 < length < 16).most_common(1)[0]
    chosen = [line for line, found in zip(lines, lengths, strict=True) if found == length]
    return (chosen * count)[:count], length


@contextlib.contextmanager
def workers(options, search):
    """The processes of all `RUNTIMES`, by name, with exports of one search."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        directory = exported(options.directory, Path(folder) / "model", search, {name for name, _ in RUNTIMES.values()})
        make = functools.partial(Translator, directory, search, options)
        yield {name: stack.enter_context(make(*RUNTIMES[name])) for name in RUNTIMES}


def exported(directory, copy, search, runtimes, shortlist=None):
    """A copy of the model directory with the exports of one search. Runtimes that are not exports are skipped."""
    from keras_transformer.export.format import Exported
    from keras_transformer.export.registry import FORMATS
    from keras_transformer.translate.finished_model import load_finished

    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns("checkpoints", "logs", "export"))
    source = ModelDirectory(copy)
    model, tokenizers = load_finished(source)
    exported = Exported(model, source, tokenizers, search, shortlist)
    source.export.mkdir()
    for runtime in sorted(runtimes & {*FORMATS}):
        print(f"Exporting {runtime}", file=sys.stderr)
        FORMATS[runtime].write(exported, source.exported(runtime))
    return copy


def measure(running, lines, batch_size, passes, requests=False):
    """The answers of each process to a number of passes over the text. The processes take turns."""
    results = {name: [] for name in running}
    for number in range(passes + 1):
        for name, worker in running.items():
            result = worker.translate(lines, batch_size, requests)
            if number:  # The first pass is a warm-up.
                results[name].append(result)
    return results


def show(title, lines, results, running, reference=None):
    from rich.console import Console
    from rich.table import Table

    seconds = {name: statistics.median(result["seconds"] for result in passes) for name, passes in results.items()}
    best = min(taken for name, taken in seconds.items() if name.startswith(PEER))
    table = Table(title=f"{title}; median of {len(next(iter(results.values())))} passes\n{processor()}")
    table.add_column("runtime", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for name, passes in results.items():
        last, time_taken = passes[-1], seconds[name]
        table.add_row(
            name,
            f"{len(lines) / time_taken:,.1f}",
            f"{last['subwords'] / time_taken:,.0f}",
            f"{best / time_taken:.2f}",
            f"{running[name].start['seconds']:.1f}",
            f"{last['memory']:,.0f}",
            f"{running[name].size:.1f}",
            *quality(last["texts"], reference),
        )
    Console(width=130).print(table)


def processor():
    """The model of the processor, and which of its vector instructions matter for int8."""
    text = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", text)
    flags = set(re.search(r"flags\s*: (.*)", text)[1].split()) if "flags" in text else set()
    found = [flag for flag in ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8") if flag in flags]
    return f"{name[1] if name else platform.machine()}, {os.cpu_count()} cores, {' '.join(found)}"


def quality(texts, reference, bleu_tokenize="13a"):
    """chrF, exact match, and BLEU if the lines have 4-grams."""
    from keras_transformer.evaluation.scores import corpus_scores

    if not reference:
        return "", "", ""
    scores = corpus_scores(texts, reference, bleu_tokenize)
    return f"{scores.chrf:.2f}", f"{scores.exact_match:.3f}", f"{scores.bleu:.2f}" if scores.has_4_grams else "-"


class Translator(Worker):
    """A process that translates with one runtime."""

    def __init__(self, directory, search, options, runtime, translator_options):
        places = ModelDirectory(directory)
        files = [places.model_file] if runtime == "keras" else places.exported(runtime).rglob("*")
        files = [file for file in files if file.is_file() and file.name not in ("encoder.onnx", "decoder.onnx")]
        self.size = sum(file.stat().st_size for file in files) / 2**20
        parallel = {"num_threads": options.threads, "parallel_batches": options.parallel_batches}
        if runtime == "keras":
            translator_options = {"search": vars(search)}
        arguments = json.dumps([str(directory), runtime, {**parallel, **translator_options}])
        super().__init__("-m", "benchmarks.decode_worker", arguments)

    def translate(self, lines, batch_size, requests=False):
        return self.ask([lines, batch_size, requests])


if __name__ == "__main__":
    main()
