"""The record of the format `huggingface`: the files of a `MarianMTModel`, which the library transformers loads."""

from keras_transformer.export.format import ExportFormat, late

HUGGINGFACE = ExportFormat(
    "huggingface",
    "the files of a `MarianMTModel`",
    late("marian.export:write_huggingface"),
    late("marian.export:programs"),
    prepare=late("interop.weight_map:safetensors"),
    require_supported=late("marian.export:require_expressible"),
    supports_token_scores=False,
    supports_shortlist=False,
    recorded_search=late("marian.export:recorded_search"),
)
