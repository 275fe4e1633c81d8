"""The records of the format `onnx`: float32, int8 and float16."""

from keras_transformer.export.format import ExportFormat, late


def _make(**quantize):
    return ExportFormat(
        "onnx",
        "ONNX graphs",
        late("onnx.export:write_onnx", **quantize),
        late("onnx.export:programs", **quantize),
        **quantize,
    )


ONNX, ONNX_INT8, ONNX_FLOAT16 = _make(), _make(quantize="int8"), _make(quantize="float16")
