"""The languages that lingua identifies. Install the extra `serve` or `clean`."""

from typing import TYPE_CHECKING

from keras_transformer.text.languages import parse_language

if TYPE_CHECKING:
    import lingua

#: The script in which lingua knows a language that is written in several.
_SCRIPTS = {
    "az": "Latn",
    "bs": "Latn",
    "hi": "Deva",
    "kk": "Cyrl",
    "mn": "Cyrl",
    "ms": "Latn",
    "pa": "Guru",
    "sr": "Cyrl",
}


def lingua_languages(code: str) -> "tuple[lingua.Language, ...]":
    """The languages of lingua that a code names: two for `no`, none for a language that lingua does not know.

    Args:
        code: a code. Its region is ignored, and so is the script of Chinese.

    Raises:
        ImportError: if lingua is not installed.

    Example:

    >>> [[one.name for one in lingua_languages(code)] for code in ("deu", "no", "zh-Hant", "gl", "sr-Latn")]
    [['GERMAN'], ['BOKMAL', 'NYNORSK'], ['CHINESE'], [], []]
    """
    from lingua import IsoCode639_1, Language

    language = parse_language(code)
    if language.form and language.form != _SCRIPTS.get(language.base, language.form):
        return ()
    names = [language.form or "nb", language.form or "nn"] if language.base == "no" else [language.base]
    found = [getattr(IsoCode639_1, name.upper(), None) for name in dict.fromkeys(names)]
    return tuple(Language.from_iso_code_639_1(one) for one in found if one is not None)


def codes_of_lingua() -> list[str]:
    """The codes of the languages that lingua knows.

    Raises:
        ImportError: if lingua is not installed.
    """
    from lingua import Language

    return sorted(["no", *(one.iso_code_639_1.name.lower() for one in Language.all())])
