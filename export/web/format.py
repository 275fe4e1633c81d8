"""The record of the format `web`: a folder of static files that translates in the browser."""

from keras_transformer.export.format import ExportFormat, late

WEB = ExportFormat(
    "web",
    "a folder of static files that translates in the browser",
    late("web.export:write_web"),
    late("web.export:programs"),
    prepare=late("web.packages:require_packages"),
    supports_token_scores=False,
)
