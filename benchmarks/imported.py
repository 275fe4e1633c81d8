"""Speed of imported models: `python -m benchmarks.imported --help`.

Writes a model of the library transformers with random weights, imports it and exports its search to ONNX. Each runtime
is a separate process. From the ids of equally long sources, it generates equally many tokens, because a random model
does not end its translations by itself. The processes take turns after each pass.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.decode import processor
from benchmarks.random_checkpoint import SIZES, write
from benchmarks.worker import Worker

PEER = "transformers"
WORKER = Path(__file__).with_name("imported_worker.py")


def main():
    options = parsed()
    for size in options.sizes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            checkpoint = Path(folder) / "checkpoint"
            checkpoint.mkdir()
            apart(write, size, checkpoint)
            apart(write_graphs, checkpoint, options)
            for beam_size in options.beams:
                show(f"{size}, beam {beam_size}", measure(Path(folder), beam_size, options), options)


def parsed():
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.imported", description=__doc__)
    parser.add_argument("sizes", nargs="+", choices=SIZES, metavar="SIZE", help=f"one or several of {', '.join(SIZES)}")
    parser.add_argument("--beams", type=numbers, default="1,4", help="beam sizes")
    parser.add_argument("--batches", type=numbers, default="1,8", help="sentences at a time")
    parser.add_argument("--source_length", type=int, default=24, help="number of tokens of each source")
    parser.add_argument("--steps", type=int, default=32, help="number of tokens to generate; more than of a source")
    parser.add_argument("--passes", type=int, default=5, help="the table shows the median")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of every runtime")
    parser.add_argument("--optimum", help="Python of an environment with `optimum-onnx[onnxruntime]`")
    parser.add_argument("--folder", help="folder of temporary files; default: the system's temporary folder")
    options = parser.parse_args()
    if options.steps <= options.source_length:
        parser.error(f"--steps must be greater than --source_length. Received: {options.steps}")
    return options


def apart(function, *arguments):
    """Calls a function in a process of its own, which frees its memory."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def write_graphs(checkpoint, options):
    """Exports the search of each beam size in float32 and int8."""
    import onnx

    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export import import_checkpoint
    from keras_transformer.export.format import Exported
    from keras_transformer.export.onnx.export import graphs, make_graph
    from keras_transformer.export.onnx.external_weights import WeightsFile
    from keras_transformer.translate.finished_model import load_finished

    directory = import_checkpoint(checkpoint, checkpoint.parent / "model")
    model, tokenizers = load_finished(directory)
    for beam_size in options.beams:
        length = {"min_length": options.steps, "extra_length": options.steps - options.source_length}
        exported = Exported(model, directory, tokenizers, BeamSearch(beam_size=beam_size, length_penalty=0.0, **length))
        name = "model_prefix" if "model_prefix" in graphs(exported) else "model"
        for quantize in (None, "int8"):
            folder = _graph_folder(checkpoint.parent, beam_size, quantize)
            print(f"Exporting {folder.name}", file=sys.stderr)
            proto = make_graph(name, exported, quantize)
            folder.mkdir()
            WeightsFile(folder).take_from(proto)
            onnx.save(proto, folder / "model.onnx")


def _graph_folder(folder, beam_size, quantize):
    return folder / f"beam {beam_size}, {quantize or 'float32'}"


def runtimes(folder, beam_size, optimum):
    """Name -> the Python, and the runtime of the worker, its folder and its own options."""
    checkpoint, ours = folder / "checkpoint", sys.executable
    found = {
        "ONNX float32": (ours, "onnx", _graph_folder(folder, beam_size, None), {}),
        "ONNX int8": (ours, "onnx", _graph_folder(folder, beam_size, "int8"), {}),
        PEER: (ours, "transformers", checkpoint, {}),
        "CTranslate2 float32": (ours, "ctranslate2", checkpoint, {"compute_type": "float32"}),
        "CTranslate2 int8": (ours, "ctranslate2", checkpoint, {"compute_type": "int8"}),
    }
    return {**found, "optimum": (optimum, "optimum", checkpoint, {})} if optimum else found


def measure(folder, beam_size, options):
    """Batch size -> runtime -> seconds of each pass."""
    with contextlib.ExitStack() as stack:
        search = {"beam_size": beam_size, "steps": options.steps, "threads": options.threads}
        workers = {}
        for name, (python, runtime, place, others) in runtimes(folder, beam_size, options.optimum).items():
            arguments = json.dumps([runtime, str(place), {**search, **others}])
            workers[name] = stack.enter_context(Worker(WORKER, arguments, python=python))
        seconds = {batch_size: {name: [] for name in workers} for batch_size in options.batches}
        for batch_size, found in seconds.items():
            # The ids of ordinary tokens in each of the vocabularies.
            source = np.random.default_rng(1).integers(10, 250, (batch_size, options.source_length)).tolist()
            for number in range(options.passes + 1):
                for name, worker in workers.items():
                    answer = worker.ask(source)
                    if answer["steps"] != options.steps:
                        raise RuntimeError(f"{name} generated {answer['steps']} tokens, not {options.steps}")
                    if number:  # The first pass is a warm-up.
                        found[name].append(answer["seconds"])
    return seconds


def show(title, seconds, options):
    from rich.console import Console
    from rich.table import Table

    lengths = f"{options.source_length} tokens in, {options.steps} out, {options.threads} threads"
    table = Table("runtime", title=f"{title}, {lengths}; median of {options.passes} passes\n{processor()}")
    for batch_size in seconds:
        table.add_column(f"batch {batch_size}: tokens/s", justify="right")
        table.add_column(f"/ {PEER}", justify="right")
    for name in next(iter(seconds.values())):
        cells = []
        for batch_size, found in seconds.items():
            ratios = [theirs / own for theirs, own in zip(found[PEER], found[name], strict=True)]
            cells.append(f"{batch_size * options.steps / statistics.median(found[name]):,.1f}")
            cells.append(f"{statistics.median(ratios):.2f}")
        table.add_row(name, *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
