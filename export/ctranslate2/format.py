"""The record of the format `ctranslate2`."""

import dataclasses

from keras_transformer.export.format import ExportFormat, Program


def _write(*arguments):
    from keras_transformer.export.ctranslate2.export import write_ctranslate2

    write_ctranslate2(*arguments)


def _require_supported(config, tokenizers):
    from keras_transformer.export.ctranslate2.export import require_supported

    require_supported(config, tokenizers)


def _programs(path, strategy):
    from keras_transformer.export.ctranslate2.translator import CTranslate2Translator
    from keras_transformer.export.verify.search import check_search

    beam = dataclasses.replace(strategy, n_best=1, length_penalty=0.0)
    searches = {"ctranslate2 greedy": dataclasses.replace(beam, beam_size=1), "ctranslate2 beam": beam}
    return {
        title: Program(CTranslate2Translator(path, search, protect="off"), search, check_search)
        for title, search in searches.items()
    }


def _load(directory, **options):
    from keras_transformer.export.ctranslate2.translator import CTranslate2Translator

    return CTranslate2Translator(directory, **options)


CTRANSLATE2 = ExportFormat(
    "ctranslate2",
    "a CTranslate2 model",
    _write,
    _programs,
    _load,
    client_packages=("ctranslate2",),
    require_supported=_require_supported,
    supports_token_scores=False,
    has_fixed_search=False,
)
