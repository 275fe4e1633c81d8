"""The record of the format `ctranslate2`."""

from keras_transformer.export.format import ExportFormat, late

CTRANSLATE2 = ExportFormat(
    "ctranslate2",
    "a CTranslate2 model",
    late("ctranslate2.export:write_ctranslate2"),
    late("ctranslate2.export:programs"),
    prepare=late("ctranslate2.translator:library"),
    require_supported=late("ctranslate2.export:require_supported"),
    supports_token_scores=False,
)
