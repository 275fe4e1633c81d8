"""All export formats. A new format needs its own folder, with an `ExportFormat`, and one line here."""

from keras_transformer.export.ctranslate2.format import CTRANSLATE2
from keras_transformer.export.format import ExportFormat
from keras_transformer.export.marian.format import HUGGINGFACE
from keras_transformer.export.onnx.format import ONNX, ONNX_FLOAT16, ONNX_INT8
from keras_transformer.export.saved_model.format import SAVED_MODEL
from keras_transformer.export.web.format import WEB

_ALL = (SAVED_MODEL, ONNX, ONNX_INT8, ONNX_FLOAT16, CTRANSLATE2, HUGGINGFACE, WEB)

#: Formats by the name of the export.
FORMATS: dict[str, ExportFormat] = {format.name: format for format in _ALL}


def describe_formats() -> str:
    """The names in `--format`, each with what it is."""
    descriptions = {format.format: format.description for format in FORMATS.values()}
    return ", ".join(f"`{name}` ({description})" for name, description in descriptions.items())
