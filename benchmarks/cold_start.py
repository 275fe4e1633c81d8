"""Time from process start to the first translation, for every runtime: `python -m benchmarks.cold_start --help`.

Each measurement is a new process that imports the client, loads the model and translates one line. The runtimes take
turns, so that varying load of the machine affects all of them equally.
"""

import argparse
import statistics
import subprocess
import sys
import time

from keras_transformer.translate.load import available_runtimes

PROGRAM = """
import sys
from keras_transformer.translate import load_translator
load_translator(sys.argv[1], sys.argv[2]).translate([sys.argv[3]])
print(flush=True)
sys.stdin.read()
"""


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a model directory with all exports")
    parser.add_argument("--starts", type=int, default=5, help="processes per runtime; the table shows the median")
    parser.add_argument("--line", default="twenty-one", help="text to translate")
    options = parser.parse_args()
    seconds = {runtime: [] for runtime in available_runtimes(options.directory)}
    for number in range(options.starts + 1):
        for runtime, taken in seconds.items():
            one = start(options.directory, runtime, options.line)
            if number:  # The first start is not counted: it reads the files into the disk cache.
                taken.append(one)
    show(f"process start to first translation, median of {options.starts}", seconds)


def start(directory, runtime, line):
    """Seconds from the start of a process to its first translation."""
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, directory, runtime, line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        has_translated = process.stdout.readline()
        taken = time.perf_counter() - started
        process.communicate()
    if not has_translated:
        sys.exit(
            f"{runtime}: no translation; `keras-transformer translate {directory} --runtime {runtime}` shows the error"
        )
    return taken


def show(title, seconds):
    from rich.console import Console
    from rich.table import Table

    table = Table("runtime", *(f"{name} s" for name in ("median", "fastest", "slowest")), title=title)
    for runtime, taken in seconds.items():
        table.add_row(runtime, *(f"{of(taken):.2f}" for of in (statistics.median, min, max)))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
