"""One stage of `benchmarks.corpus`, in its own process. Prints one line of JSON."""

import functools
import os
import sys
import time
from pathlib import Path

from benchmarks.decode_worker import answer, peak_memory

TINY = ["--model.num_layers=1", "--model.d_model=16", "--model.num_heads=2", "--model.d_ff=32", "--recipe.xla=false"]


def main():
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Standard output is for the answers only.
    stage, folder, steps = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    found = STAGES[stage](folder, steps)
    answer(answers, memory=peak_memory(), **found)


def prepare(folder, steps):
    from keras_transformer.text.tokenization import TokenizerConfig
    from keras_transformer.training.data.prepare import prepare
    from keras_transformer.training.data_config import PrepareConfig

    started = time.perf_counter()
    text = {"source": str(folder / "text.en"), "target": str(folder / "text.de")}
    config = PrepareConfig(output=str(folder / "tokens"), tokenizer=TokenizerConfig(vocab_size=400), **text)
    pairs = prepare(config).statistics("train").pairs
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "pairs": pairs / seconds}


def time_batches(folder, steps, num_buckets):
    """Times batches, half from a first epoch and half from a second."""
    from keras_transformer.storage.token_directory import TokenDirectory
    from keras_transformer.training.data.batches import make_batches
    from keras_transformer.training.data_config import BatchConfig

    started = time.perf_counter()
    batches = make_batches(*TokenDirectory(folder / "tokens").sides("train"), BatchConfig(num_buckets=num_buckets))
    start = time.perf_counter() - started
    times = []
    for first in (0, batches.steps):
        for step in range(first, first + min(steps // 2, batches.steps)):
            before = time.perf_counter()
            batches.training_batch(1, step)
            times.append(time.perf_counter() - before)
    median = sorted(times)[len(times) // 2]
    found = {"seconds": start + sum(times), "start": start, "batch": 1000 * median, "worst": 1000 * max(times)}
    return found | {"padding": batches.padding}


def train(folder, steps):
    from keras_transformer.cli import main

    started = time.perf_counter()
    arguments = ["train", f"--prepared={folder / 'tokens'}", f"--output={folder / 'run'}", *TINY]
    if main([*arguments, f"--recipe.max_steps={max(steps // 10, 1)}"]):
        sys.exit(1)
    return {"seconds": time.perf_counter() - started}


STAGES = {
    "prepare": prepare,
    "packed": functools.partial(time_batches, num_buckets=None),
    "buckets": functools.partial(time_batches, num_buckets=4),
    "train": train,
}

if __name__ == "__main__":
    main()
