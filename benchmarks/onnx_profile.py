"""Where an ONNX export spends its time, by kinds of nodes: `python -m benchmarks.onnx_profile --help`.

onnxruntime's profiler measures each node of the graph. `Loop` and `If`, which contain the others, are not counted.
"""

import argparse
import collections
import json
import tempfile
import time
from pathlib import Path

from keras_transformer.export import OnnxTranslator
from keras_transformer.storage.origin import export_folder

#: What nodes do -> their types.
KINDS = {
    "products with weights": ("MatMulIntegerToFloat", "MatMulInteger", "DynamicQuantizeMatMul", "Gemm"),
    "products of attention, and float products": ("MatMul", "FusedMatMul"),
    "growing and reordering the cache": ("Concat", "Gather"),
    "finding scales and quantizing": ("Abs", "ReduceMax", "Div", "QuantizeLinear", "DynamicQuantizeLinear"),
    "softmax over the vocabulary and top-k": ("LogSoftmax", "TopK"),
}
OTHERS = "additions, factors, normalization, shapes and others"


class Recorder(OnnxTranslator):
    """Keeps the batches that it translates."""

    def search(self, source, n_best=None):
        self.batches.append(source)
        return super().search(source, n_best)


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_profile", description=__doc__)
    parser.add_argument("directory", help="a model directory with an ONNX export")
    parser.add_argument("--source", required=True, help="text to translate, one sentence per line")
    parser.add_argument("--quantize", choices=["int8", "float16"], help="default: the float32 export")
    parser.add_argument("--sentences", type=int, default=256, help="number of lines of --source")
    options = parser.parse_args()
    lines = Path(options.source).read_text(encoding="utf-8").splitlines()[: options.sentences]
    translator = Recorder(options.directory, num_threads=1, quantize=options.quantize)
    translator.batches = []
    translator.translate(lines)  # Also warms up.
    file = export_folder(options.directory, "onnx", options.quantize) / "model.onnx"
    seconds, wall = profile(file, translator.batches)
    show(seconds, wall, len(lines))


def profile(file, batches):
    """Seconds by type of node, and those of all runs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        started = time.perf_counter()
        for batch in batches:
            session.run(None, {"source": batch})
        wall = time.perf_counter() - started
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    seconds = collections.Counter()
    for event in events:
        kind = event.get("args", {}).get("op_name")
        if event["name"].endswith("_kernel_time") and kind not in ("Loop", "If"):
            seconds[kind] += event["dur"] / 1e6
    return seconds, wall


def show(seconds, wall, sentences):
    from rich.console import Console
    from rich.table import Table

    total = seconds.total()
    table = Table("nodes", "share", title=f"{sentences} sentences, one thread")
    shares = {name: sum(seconds[kind] for kind in kinds) / total for name, kinds in KINDS.items()}
    for name, share in (shares | {OTHERS: 1 - sum(shares.values())}).items():
        table.add_row(name, f"{share:.0%}")
    console = Console(width=100)
    console.print(table)
    console.print(f"With the profiler, {1 - total / wall:.0%} of the time is spent between nodes.")


if __name__ == "__main__":
    main()
