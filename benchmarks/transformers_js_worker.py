"""Converts the files of `--format huggingface` for transformers.js: `PYTHON transformers_js_worker.py INPUT OUTPUT`.

Runs in an environment with `optimum[onnxruntime]<2 torch<2.8`, which this package does not need.
"""

import sys
from pathlib import Path

from onnxruntime.quantization import QuantType, quantize_dynamic
from optimum.exporters.onnx import main_export


def main():
    source, output = map(Path, sys.argv[1:])
    main_export(str(source), output=output, task="text2text-generation-with-past")
    folder = output / "onnx"
    folder.mkdir()
    for name in ("encoder_model", "decoder_model_merged"):
        quantize_dynamic(
            output / f"{name}.onnx",
            folder / f"{name}_quantized.onnx",
            weight_type=QuantType.QInt8,
            extra_options={"EnableSubgraph": True},  # The merged decoder has its layers in the branches of an `If`.
        )


if __name__ == "__main__":
    main()
