"""The record of the format `huggingface`: the files of a `MarianMTModel`, which the library transformers loads."""

from keras_transformer.export.format import ExportFormat, Program


def _write(*arguments):
    from keras_transformer.export.marian.export import write_huggingface

    write_huggingface(*arguments)


def _require_supported(config, tokenizers):
    from keras_transformer.export.marian.export import require_expressible

    require_expressible(config, tokenizers)


def _programs(path, strategy):
    from keras_transformer.export.marian.export import read_huggingface
    from keras_transformer.export.verify.equality import compare

    return {"huggingface": Program(read_huggingface(path, strategy), strategy, compare)}


def _recorded_search(strategy):
    from keras_transformer.export.marian.export import recorded_search

    return recorded_search(strategy)


HUGGINGFACE = ExportFormat(
    "huggingface",
    "the files of a `MarianMTModel`",
    _write,
    _programs,
    load=None,
    require_supported=_require_supported,
    supports_token_scores=False,
    supports_shortlist=False,
    recorded_search=_recorded_search,
)
