"""The record of the format `web`: a folder of static files that translates in the browser."""

from keras_transformer.export.format import ExportFormat, Program


def _prepare():
    from keras_transformer.export.web.packages import require_packages

    require_packages()


def _write(*arguments):
    from keras_transformer.export.web.export import write_web

    write_web(*arguments)


def _programs(path, strategy):
    """The folder's `model.onnx` in Python: an int8 graph as of the format `onnx`. No browser is needed."""
    from keras_transformer.export.onnx.translator import OnnxTranslator
    from keras_transformer.export.verify.quality import compare_likelihood

    return {"web": Program(OnnxTranslator(path, protect="off"), strategy, compare_likelihood)}


WEB = ExportFormat(
    "web",
    "a folder of static files that translates in the browser",
    _write,
    _programs,
    load=None,
    prepare=_prepare,
    supports_token_scores=False,
)
