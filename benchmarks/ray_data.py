"""Speed of `examples/ray/translate_files.py`, and what remains after kills: `python -m benchmarks.ray_data --help`.

The text is repeated until there are enough lines, and divided into files. The first row is `keras-transformer
translate` of the first file, on one core. The last row kills the job with `kill -9` at random points and starts
it again. Its files must equal those of the other rows, byte by byte. The times include the start of Ray and of the
workers.
"""

import argparse
import itertools
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_data", description=__doc__)
    parser.add_argument("directory", nargs="?", default="runs/quickstart", help="a model directory with exports")
    parser.add_argument("--source", help="text to translate, one sentence per line; default: 500 held-out numbers")
    parser.add_argument("--runtime", default="onnx_int8", help="runtime that translates")
    parser.add_argument("--lines", type=int, default=1_000_000, help="number of lines")
    parser.add_argument("--files", type=int, default=4, help="number of files")
    parser.add_argument(
        "--workers",
        default="1,2",
        help="numbers of workers, separated by commas; the job is repeated with the last number and killed",
    )
    parser.add_argument("--kills", type=int, default=3, help="number of kills")
    options = parser.parse_args()

    from benchmarks.decode import texts

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        count = write_texts(folder / "texts", texts(options.source, None)[0], options)
        rows = [translate(folder, options)]
        for workers in options.workers.split(","):
            rows.append(measured(folder, f"unbroken-{workers}", workers, options, count))
        rows.append(measured(folder, "killed", workers, options, count, kills=options.kills))
        show(rows, options)
    if not all(row["equal"] for row in rows):
        sys.exit("Some files differ")


def write_texts(folder, lines, options):
    """Writes the files. Returns the number of lines."""
    folder.mkdir()
    repeated, size = itertools.cycle(lines), -(-options.lines // options.files)
    for i in range(options.files):
        part = itertools.islice(repeated, min(size, options.lines - i * size))
        (folder / f"{i:03d}.txt").write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    return options.lines


def translate(folder, options):
    """The row of the command line."""
    source, output = folder / "texts/000.txt", folder / "translated.txt"
    command = [sys.executable, "-m", "keras_transformer", "translate", options.directory, source]
    command += [f"--runtime={options.runtime}", "--num_threads=1", "--parallel_batches=1", f"--output={output}"]
    started = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - started
    with open(source, "rb") as file:
        count = sum(1 for _ in file)
    return {"job": "translate", "seconds": seconds, "lines": count, "rate": count / seconds, "equal": True}


def measured(folder, name, workers, options, count, kills=0):
    """The row of one job, which is killed at random points and started again."""
    output, kept, draw = folder / name, [], random.Random(1)
    command = [sys.executable, ROOT / "examples/ray/translate_files.py", options.directory, folder / "texts", output]
    command += [f"--runtime={options.runtime}", f"--workers={workers}"]
    started = time.perf_counter()
    for share in sorted(draw.random() for _ in range(kills)):
        process = subprocess.Popen([*map(str, command)])
        size = share * sum(map(len, contents(folder / f"unbroken-{workers}").values()))
        while process.poll() is None and sum(path.stat().st_size for path in finished(output)) < size:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            sys.exit("The job ended before it was killed")
        kept.append(sum(path.read_bytes().count(b"\n") for path in finished(output)))
    status = subprocess.run([*map(str, command)]).returncode
    if status:
        sys.exit(f"The job {name} failed")
    elapsed = time.perf_counter() - started
    first = (output / "000.txt").read_bytes() == (folder / "translated.txt").read_bytes()
    others = [contents(folder / f"unbroken-{other}") for other in options.workers.split(",")]
    equal = first and all(contents(output) == other for other in others if other)
    leftovers = [path.name for path in output.iterdir() if path.name.endswith(".partial") or ".tmp-" in path.name]
    return {
        "job": f"{workers} workers" if workers != "1" else "1 worker",
        "kills": len(kept),
        "kept": ", ".join(map(str, kept)),
        "seconds": elapsed,
        "lines": count,
        "rate": count / elapsed,
        "equal": equal and not leftovers,
    }


def finished(output):
    """The finished files, and the lines of the others."""
    return [path for path in [*output.glob("*.txt"), *output.glob("*.partial/lines")] if path.is_file()]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.txt")} if folder.exists() else {}


def show(rows, options):
    from rich.console import Console
    from rich.table import Table

    columns = {
        "": ("job", ""),
        "kills": ("kills", ""),
        "lines kept after each": ("kept", ""),
        "lines": ("lines", ","),
        "seconds": ("seconds", ".0f"),
        "lines/s": ("rate", ".0f"),
        "equal": ("equal", ""),
    }
    table = Table(*columns, title=f"{options.lines:,} lines in {options.files} files, {options.runtime}")
    for row in rows:
        cells = {name: "yes" if value is True else "no" if value is False else value for name, value in row.items()}
        table.add_row(*(format(cells[name], form) if name in cells else "" for name, form in columns.values()))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
