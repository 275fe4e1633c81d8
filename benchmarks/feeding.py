"""The cost of text that is tokenized during the training: `python -m benchmarks.feeding --help`.

Each run is a `keras-transformer train` of its own, from the same prepared tokens and with batches of the same shape.
The runs take turns, so that varying load of the machine affects all of them equally. Only the steps count, without
starting and compiling.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLING = {"source_sampling": 0.1, "target_sampling": 0.1}
NOISE = {"upper_case": 0.05, "title_case": 0.05, "no_end_punctuation": 0.1, "typos": 0.05, "merge": 0.1}
#: Positions of a batch on each side, all of which are computed. Packing leaves few of them empty.
TOKENS = 2048
#: Options of `augmentation`, by the name of the run.
RUNS = {"plain": {}, "sampling": SAMPLING, "sampling and noise": {**SAMPLING, **NOISE}}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.feeding", description=__doc__)
    parser.add_argument("--source", required=True, help="training text, one sentence per line, plain or .gz")
    parser.add_argument("--target", required=True, help="translation of --source")
    parser.add_argument("--vocab_size", type=int, default=5000)
    parser.add_argument("--num_layers", type=int, default=3, help="layers of each stack")
    parser.add_argument("--d_model", type=int, default=256)
    parser.add_argument("--steps", type=int, default=120, help="steps of a run; the first 10 do not count")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind; the table shows the median")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(measure(options, Path(folder)))


def measure(options, folder: Path) -> dict[str, list[float]]:
    """The steps per second of each run."""
    prepared = folder / "tokens"
    text = [f"--source={options.source}", f"--target={options.target}", "--max_length=64"]
    call("prepare", f"--output={prepared}", *text, f"--tokenizer.vocab_size={options.vocab_size}")
    rates = {name: [] for name in RUNS}
    for number in range(options.rounds):
        for name, changes in RUNS.items():
            output = folder / f"{name}-{number}"
            call(
                *("train", f"--output={output}", f"--prepared={prepared}", f"--tokens_per_batch={TOKENS}"),
                *(f"--model.num_layers={options.num_layers}", f"--model.d_model={options.d_model}"),
                *("--model.num_heads=4", f"--model.d_ff={4 * options.d_model}", "--recipe.warmup_steps=10"),
                f"--recipe.max_steps={options.steps}",
                *(f"--augmentation.{option}={value}" for option, value in changes.items()),
            )
            rates[name].append(steps_per_second(output))
    return rates


def call(*arguments):
    """Runs a command of the package. Its progress is shown only if it fails."""
    completed = subprocess.run([sys.executable, "-m", "keras_transformer", *arguments], capture_output=True, text=True)
    if completed.returncode:
        sys.exit(completed.stderr)


def steps_per_second(run: Path) -> float:
    """The speed of a run from its first logged step, after compiling, to the last one."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "logs/train")).Reload().Tensors("loss")
    return (events[-1].step - events[0].step) / (events[-1].wall_time - events[0].wall_time)


def show(rates: dict[str, list[float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("run", "positions/s", "relative to plain")
    for name, values in rates.items():
        relative = statistics.median(ours / plain for ours, plain in zip(values, rates["plain"], strict=True))
        table.add_row(name, f"{TOKENS * statistics.median(values):,.0f}", f"{relative:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
