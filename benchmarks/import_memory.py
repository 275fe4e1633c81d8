"""Time and memory to import and export models of real size: `python -m benchmarks.import_memory nllb-600m`.

Writes a model of the library transformers with random weights, and runs each command in a new process.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.random_checkpoint import SIZES

#: Sampling interval of the memory, in seconds.
_INTERVAL = 0.02
#: Words in a message of a command -> the phase that begins then.
_PHASES = {"Token ids: ": "comparing", ": converting to": "converting", ", verifying": "verifying"}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.import_memory", description=__doc__)
    parser.add_argument("sizes", nargs="+", choices=SIZES, metavar="SIZE", help=f"one or several of {', '.join(SIZES)}")
    parser.add_argument("--formats", default="onnx,onnx_int8", help="exports, separated by commas")
    parser.add_argument("--beam_size", type=int, default=4, help="hypotheses of the exported beam search")
    parser.add_argument(
        "--extra_length", type=int, default=16, help="tokens of a hypothesis beyond those of the source"
    )
    parser.add_argument("--verify", action="store_true", help="compare the import with transformers")
    parser.add_argument("--folder", help="folder of temporary files; default: the system's temporary folder")
    options = parser.parse_args()
    found = []
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for row in measure(size, Path(folder), options):
                found.append((size, *row))
                print("{} {}: {:.2f} minutes, {:.2f} GB".format(*row), file=sys.stderr)
    show(found)


def measure(size, folder, options):
    """Yields the command, and each phase with its minutes and its peak memory in GB."""
    print(f"Writing {size}", file=sys.stderr)
    (folder / "checkpoint").mkdir()
    subprocess.run([sys.executable, "-m", "benchmarks.random_checkpoint", size, folder / "checkpoint"], check=True)
    verify = ["--verify"] if options.verify else []
    for row in phases(["import", folder / "checkpoint", "--output", folder / "model", *verify], "importing"):
        yield "import", *row
    search = [f"--beam_size={options.beam_size}", f"--extra_length={options.extra_length}"]
    for name in filter(None, options.formats.split(",")):
        format, _, quantize = name.partition("_") if name.startswith("onnx") else (name, "", "")
        command = ["export", folder / "model", f"--format={format}", *search]
        for row in phases([*command, *([f"--quantize={quantize}"] if quantize else [])], "loading"):
            yield name, *row


def phases(command, phase):
    """Runs a command. Yields each phase, its minutes and its peak memory in GB."""
    code = "import sys; from keras_transformer.cli import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, command)], stderr=subprocess.PIPE, text=True)
    peak = Peak(process.pid)
    started = time.monotonic()
    for line in process.stderr:
        if next_phase := next((name for words, name in _PHASES.items() if words in line), None):
            yield phase, (time.monotonic() - started) / 60, peak.take()
            phase, started = next_phase, time.monotonic()
        print(line, end="", file=sys.stderr)
    if process.wait():
        raise SystemExit(f"The command failed: {' '.join(map(str, command))}")
    yield phase, (time.monotonic() - started) / 60, peak.take()


class Peak:
    """The largest resident memory of a process, in GB."""

    def __init__(self, pid):
        self._file, self._most = Path(f"/proc/{pid}/statm"), 0
        threading.Thread(target=self._watch, daemon=True).start()

    def take(self):
        """Returns the peak since the last call."""
        most, self._most = self._most, 0
        return most * resource.getpagesize() / 1e9

    def _watch(self):
        while True:
            try:
                pages = int(self._file.read_text().split()[1])
            except (OSError, IndexError):  # The process has ended.
                return
            self._most = max(self._most, pages)
            time.sleep(_INTERVAL)


def show(rows):
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "command", "phase")
    for heading in ("minutes", "peak GB"):
        table.add_column(heading, justify="right")
    for *names, minutes, peak in rows:
        table.add_row(*names, f"{minutes:.2f}", f"{peak:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
