"""Time and memory to process a large corpus: `python -m benchmarks.corpus --pairs 5000000`.

Writes number words as text, and runs each stage in a new process: `prepare`; packed and bucketed batches, half of them
from a second epoch; and some steps of `train` with a tiny model.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.corpus_worker import STAGES


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--pairs", type=int, default=200_000, help="number of pairs")
    parser.add_argument("--steps", type=int, default=1000, help="batches of each kind; training uses a tenth of them")
    parser.add_argument("--folder", help="folder of temporary files; default: the system's temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        seconds = write_text(Path(folder), options.pairs)
        print(f"{options.pairs:,} pairs of text written in {seconds:.0f} s", file=sys.stderr)
        found = {stage: measure(stage, folder, options.steps) for stage in STAGES}
        mebibytes = {
            name: sum(file.stat().st_size for file in Path(folder).glob(pattern)) / 2**20
            for name, pattern in (("text", "text.*"), ("tokens", "tokens/*"))
        }
    show(options.pairs, found, mebibytes)


def write_text(folder, pairs):
    """Writes lines with one to four numbers below 1,000. Returns the time in seconds."""
    from num2words import num2words

    started = time.perf_counter()
    draw = random.Random(1)
    words = {language: [num2words(i, lang=language) for i in range(1000)] for language in ("en", "de")}
    with open(folder / "text.en", "w") as source, open(folder / "text.de", "w") as target:
        for _ in range(pairs):
            numbers = draw.choices(range(1000), k=draw.randint(1, 4))
            for file, language in ((source, "en"), (target, "de")):
                file.write(" ".join([words[language][number] for number in numbers]) + "\n")
    return time.perf_counter() - started


def measure(stage, folder, steps):
    print(f"Measuring {stage}", file=sys.stderr)
    command = [sys.executable, "-m", "benchmarks.corpus_worker", stage, folder, str(steps)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def show(pairs, found, mebibytes):
    from rich.console import Console
    from rich.table import Table

    title = f"{pairs:,} pairs: {mebibytes['text']:,.0f} MiB of text, {mebibytes['tokens']:,.0f} MiB of tokens"
    table = Table("stage", title=title)
    for heading in ("seconds", "pairs/s", "start s", "ms/batch", "max ms/batch", "padding", "peak MiB"):
        table.add_column(heading, justify="right")
    for stage, values in found.items():
        cells = {name: f"{values[name]:{form}}" if name in values else "" for name, form in FORMS.items()}
        table.add_row(stage, *cells.values())
    Console(width=110).print(table)


FORMS = {
    "seconds": ",.1f",
    "pairs": ",.0f",
    "start": ".2f",
    "batch": ".3f",
    "worst": ",.1f",
    "padding": ".0%",
    "memory": ",.0f",
}

if __name__ == "__main__":
    main()
