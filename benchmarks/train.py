"""Training speed of this package and other libraries, with the same model: `python -m benchmarks.train --help`.

Each library is a separate process that trains on the same batches. The processes take turns after each pass, so that
varying load of the machine affects all of them equally. The first table uses batches of one shape without padding. The
second uses sentence pairs of a text and counts target tokens without padding. It compares this package's batching
methods with PyTorch on padded batches of sorted pairs.

For a GPU, `--preset base --vocab_size 37000 --rows 400 --length 64 --precision mixed_bfloat16 --batches 0` is the base
model of the paper with batches of its size. With KERAS_BACKEND=jax, the Keras models train on JAX.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.train_data import random_batches, text_batches, write_batches
from benchmarks.train_peers import ATTENTION_PEERS, PEERS
from benchmarks.worker import Worker
from keras_transformer import TransformerConfig
from keras_transformer.training.data.batches import Shape
from keras_transformer.training.flops import flops_of_batch, peak_of

OURS, TORCH = "this package, XLA", "torch nn.Transformer"


def main():
    options = parsed()
    peers = [name for name in [*(ATTENTION_PEERS if options.attention else ()), *options.peers] if is_there(name)]
    if options.steps:
        batches = {"random": random_batches(options.rows, options.length, options.steps, options.vocab_size)}
        title = f"{options.rows} x {options.length} + {options.length} tokens, no padding"
        show(title, measure({name: (name, "random") for name in peers}, batches, options), batches, options)
    if options.batches:
        batches = text_batches(options)
        runs = {f"{OURS}, {how}": (OURS, how) for how in ("packed", "buckets", "plain")}
        runs |= {f"{name}, sorted": (name, "sorted") for name in peers if name == TORCH}
        show("sentence pairs of a text", measure(runs, batches, options), batches, options)


def parsed():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train", description=__doc__)
    parser.add_argument("--preset", choices=["base", "big"], help="model; default: d_model 256, 4 heads and d_ff 1024")
    parser.add_argument("--num_layers", type=int, help="layers of each stack; default: 3, or those of the preset")
    policies = ["float32", "mixed_bfloat16"]
    parser.add_argument("--precision", default="float32", choices=policies, help="Keras dtype policy of the training")
    parser.add_argument("--peers", nargs="*", default=[*PEERS], choices=[*PEERS], help="libraries; default: all")
    parser.add_argument("--attention", action="store_true", help="also fused and plain attention on JAX and PyTorch")
    parser.add_argument("--rows", type=int, default=64, help="rows per batch, in the first table")
    parser.add_argument("--length", type=int, default=32, help="length of source and target rows, in the first table")
    parser.add_argument("--steps", type=int, default=8, help="batches per pass, in the first table; 0: no table")
    parser.add_argument("--batches", type=int, default=16, help="batches per pass, in the second table; 0: no table")
    parser.add_argument("--passes", type=int, default=5, help="number of passes; the tables show the median")
    parser.add_argument("--source", help="text of the second table, one sentence per line; default: number words")
    parser.add_argument("--target", help="translation of --source")
    parser.add_argument("--tokens_per_batch", type=int, default=2048, help="batch size of the second table, in tokens")
    parser.add_argument("--vocab_size", type=int, default=8000, help="size of the vocabulary; number words have 480")
    options = parser.parse_args()
    sizes = {"vocab_size": options.vocab_size, "dropout": 0.1}
    sizes |= {"num_layers": options.num_layers} if options.num_layers else {}
    if options.preset:
        options.config = TransformerConfig.preset(options.preset, **sizes)
    else:
        options.config = TransformerConfig(**{"num_layers": 3, "d_model": 256, "num_heads": 4, "d_ff": 1024, **sizes})
    if bool(options.source) != bool(options.target):
        parser.error("--source and --target must be given together")
    return options


def is_there(peer):
    module = {**PEERS, **ATTENTION_PEERS}[peer].module
    if importlib.util.find_spec(module) is None:
        print(f"{peer}: skipped, {module} is not installed", file=sys.stderr)
        return False
    return True


def measure(runs, batches, options):
    """Runs the processes pass by pass. Returns the name of the batches and the answers, by run.

    `runs` maps the name of a run to the names of a peer and of its batches.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        files = {name: Path(folder) / f"{name}.npz" for name in batches}
        for name, file in files.items():
            write_batches(file, batches[name])
        command = "-m", "benchmarks.train_worker"
        setup = json.dumps(dataclasses.asdict(options.config)), options.precision
        running = {}
        for run, (peer, name) in runs.items():
            print(f"Starting {run}", file=sys.stderr)
            try:
                running[run] = stack.enter_context(Worker(*command, peer, files[name], *setup))
            except RuntimeError as error:
                print(f"{run}: skipped, {error}", file=sys.stderr)
        answers = {run: [] for run in running}
        for _ in range(options.passes):
            for run, worker in running.items():
                answers[run].append({**worker.start, **worker.ask()})
    return {run: (runs[run][1], given) for run, given in answers.items()}


def show(title, results, batches, options):
    from rich.console import Console
    from rich.table import Table

    def median(answers, what):
        return statistics.median(answer[what] for answer in answers)

    real = {name: sum(np.count_nonzero(labels) for _, labels, _ in some) for name, some in batches.items()}
    slots = {name: sum(labels.size for _, labels, _ in some) for name, some in batches.items()}
    rates = {run: real[name] / median(answers, "seconds") for run, (name, answers) in results.items()}
    makers = {"speed / best torch": "torch", "speed / best Keras": "keras"}
    bests = {
        heading: max(found)
        for heading, maker in makers.items()
        if (found := [rate for run, rate in rates.items() if run.startswith(maker)])
    }
    kind = next(iter(results.values()))[1][-1]["device"]
    peak = peak_of(kind, options.precision)
    flops = {name: sum(flops_of(batch, options.config) for batch in some) for name, some in batches.items()}
    headings = (
        "target tokens/s",
        *bests,
        "s/step",
        *(("MFU",) if peak else ()),
        "padding",
        "shapes",
        "start s",
        "memory MiB",
        "loss",
    )
    table = Table(title=f"{title}; {kind}, {options.precision}; median of {options.passes} passes")
    table.add_column("library", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    for run, (name, answers) in results.items():
        table.add_row(
            run,
            f"{rates[run]:,.0f}",
            *(f"{rates[run] / best:.2f}" for best in bests.values()),
            f"{median(answers, 'seconds') / len(batches[name]):.4f}",
            *((f"{flops[name] / median(answers, 'seconds') / peak:.1%}",) if peak else ()),
            f"{1 - real[name] / slots[name]:.0%}",
            f"{len({(inputs['source'].shape, labels.shape) for inputs, labels, _ in batches[name]})}",
            *(f"{answers[-1][what]:,.{digits}f}" for what, digits in (("start", 0), ("memory", 0), ("loss", 2))),
        )
    Console(width=150).print(table)


def flops_of(batch, config):
    inputs, labels, _ = batch
    return flops_of_batch(config, Shape(len(labels), inputs["source"].shape[1], labels.shape[1]))


if __name__ == "__main__":
    main()
