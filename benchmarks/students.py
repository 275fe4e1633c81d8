"""Speed and quality of a teacher and its students: `python -m benchmarks.students --help`.

Each model is measured as int8 in this package's ONNX export and in CTranslate2, greedily and with beam search. A model
with a shortlist (`keras-transformer shortlist`) is measured with it and without it, in both. Each row is a process
that translates the whole text, from strings to strings. The processes take turns after each pass, so that varying load
of the machine affects all of them equally. The column "speed" is relative to the first row: the first model without
a shortlist, in ONNX int8, with the first beam size.

With --steps, all translations of one model have the same number of subwords, so that a model with random weights can
be measured, too.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.decode import Translator, equally_long, exported, measure, processor, quality, texts
from keras_transformer.decoding import BeamSearch, Shortlist
from keras_transformer.evaluation.scores import BLEU_TOKENIZERS
from keras_transformer.storage.model_directory import ModelDirectory

RUNTIMES = {"ONNX int8": ("onnx_int8", {}), "CTranslate2 int8": ("ctranslate2", {"compute_type": "int8"})}
COLUMNS = ("model", "runtime", "beam", "sentences/s", "words/s/core", "speed", "BLEU", "chrF", "MiB of file", "load s")


@dataclass(frozen=True)
class Point:
    """One row of the table. `shortlist` tells whether the search uses the shortlist."""

    model: str
    runtime: str
    beam_size: int
    shortlist: bool

    @property
    def label(self):
        return f"{self.model}{', shortlist' * self.shortlist}"


def main():
    options = parsed()
    lines, reference = texts(options.source, options.reference)
    lengths = {}
    if options.steps:
        lines, length = equally_long(options.directories[0], lines, 2 * options.batch * options.parallel_batches)
        lengths = {"min_length": options.steps, "extra_length": options.steps - length}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = dict(workers(options, lengths, Path(folder), stack))
        results = measure(running, lines, options.batch, options.passes)
        rows = rows_of(running, results, lines, reference, options)
    forced = f", {options.steps} forced steps" if options.steps else ""
    how = f"batches of {options.batch}, {options.parallel_batches} at a time, {options.threads} threads each{forced}"
    show(rows, f"{len(lines)} sentences in {how}; median of {options.passes} passes\n{processor()}")
    if options.picture:
        plot(rows, options.picture)


def parsed():
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.students", description=__doc__)
    parser.add_argument("directories", nargs="+", help="finished model directories; the speed is relative to the first")
    parser.add_argument("--source", required=True, help="text to translate, one sentence per line")
    parser.add_argument("--reference", help="translation of --source, which --steps does not need")
    parser.add_argument("--bleu_tokenize", default="13a", choices=BLEU_TOKENIZERS, help="tokenizer of sacreBLEU")
    parser.add_argument("--steps", type=int, help="forced length of all translations of one model; at least 16")
    parser.add_argument("--beams", type=numbers, default=[4, 1], help="beam sizes; default: 4,1")
    parser.add_argument("--batch", type=int, default=32, help="sentences per batch")
    parser.add_argument("--passes", type=int, default=3, help="passes over the text; the table shows the median")
    parser.add_argument("--threads", type=int, default=1, help="threads per batch")
    parser.add_argument("--parallel_batches", type=int, default=2, help="batches at a time")
    parser.add_argument("--picture", type=Path, help="file for the curve of BLEU over speed, such as curve.svg")
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"--threads must be at least 1. Received: {options.threads}")
    if options.passes < 1:
        parser.error(f"--passes must be at least 1. Received: {options.passes}")
    if not options.steps and not options.reference:
        parser.error("--reference is required without --steps")
    if options.steps and options.steps < 16:
        parser.error(f"--steps must be at least 16. Received: {options.steps}")
    if options.steps and len(options.directories) > 1:
        parser.error(f"--steps requires one directory. Received: {' '.join(options.directories)}")
    if options.steps and (options.reference or options.picture):
        parser.error("--reference and --picture must not be given with --steps, which makes the translations too long")
    names = [Path(directory).name for directory in options.directories]
    if len(set(names)) < len(names):
        parser.error(f"the directories must have different names. Received: {', '.join(options.directories)}")
    for directory in options.directories:
        try:
            ModelDirectory(directory).require_finished()
        except ValueError as error:
            parser.error(str(error))
    return options


def workers(options, lengths, folder, stack):
    """Pairs of a point and its running process, with an export for each model and search."""
    for directory in map(ModelDirectory, options.directories):
        shortlists = [None]
        if directory.shortlist_file.exists():
            shortlists.append(Shortlist.load(directory.shortlist_file))
        for number, shortlist in enumerate(shortlists):
            for beam_size in options.beams:
                search = BeamSearch(beam_size=beam_size, length_penalty=0.0, **lengths)
                copy = folder / f"{directory.path.name}-{number}-{beam_size}"
                names = {runtime for runtime, _ in RUNTIMES.values()}
                exported(directory.path, copy, search, names, shortlist)
                for name, (runtime, translator_options) in RUNTIMES.items():
                    point = Point(directory.path.name, name, beam_size, shortlist is not None)
                    yield point, stack.enter_context(Translator(copy, search, options, runtime, translator_options))


def rows_of(running, results, lines, reference, options):
    """The cells of the table as numbers, by the name of their column."""
    words = sum(len(line.split()) for line in lines)
    cores = options.threads * options.parallel_batches
    rows = []
    for point, passes in results.items():
        seconds = statistics.median(result["seconds"] for result in passes)
        chrf, _, bleu = quality(passes[-1]["texts"], reference, options.bleu_tokenize)
        cells = [point.label, point.runtime, point.beam_size, len(lines) / seconds, words / seconds / cores, 0.0]
        cells += [float(each) if each not in ("", "-") else float("nan") for each in (bleu, chrf)]
        rows.append(dict(zip(COLUMNS, [*cells, running[point].size, running[point].start["seconds"]], strict=True)))
    for row in rows:
        row["speed"] = row["sentences/s"] / rows[0]["sentences/s"]
    return rows


def show(rows, title):
    from rich.console import Console
    from rich.table import Table

    forms = {"sentences/s": ",.0f", "words/s/core": ",.0f", "speed": ".2f", "MiB of file": ".1f", "load s": ".2f"}
    table = Table(title=title)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(format(row[name], forms.get(name, ".2f" if name in COLUMNS[6:8] else "")) for name in COLUMNS))
    Console(width=150).print(table)


def plot(rows, path):
    """Draws BLEU over sentences per second. A line joins the beam sizes of a model in a runtime.

    A model has one colour. The line of CTranslate2 is dashed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator
    except ImportError:
        sys.exit("matplotlib is not installed: pip install matplotlib")
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    groups, colours = {}, {}
    for row in rows:
        groups.setdefault((row["model"], row["runtime"]), []).append(row)
    for (model, runtime), points in groups.items():
        mark = "o-" if runtime.startswith("ONNX") else "s--"
        colour = colours.setdefault(model, f"C{len(colours)}")
        speeds, scores = ([point[name] for point in points] for name in ("sentences/s", "BLEU"))
        axes.plot(speeds, scores, mark, color=colour, label=f"{model}, {runtime}")
        for point in points:
            place = point["sentences/s"], point["BLEU"]
            axes.annotate(f"beam {point['beam']}", place, xytext=(4, 4), textcoords="offset points", fontsize=7)
    axes.set(xscale="log", xlabel="sentences per second", ylabel="BLEU")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_formatter("")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.savefig(path)


if __name__ == "__main__":
    main()
