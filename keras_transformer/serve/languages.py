"""The languages of a server: which pairs there are, and which language a text has."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_transformer.serve.pairs import LanguagePair


class Detected(NamedTuple):
    """The language of a text.

    Attributes:
        language: its code.
        confidence: percentage, from 0 to 100.
    """

    language: str
    confidence: float


class Languages:
    """The pairs of languages that a server translates.

    Args:
        pairs: the pairs.

    Attributes:
        can_detect: whether `detect` can be used. lingua knows neither all languages nor different scripts of one.

    Raises:
        ValueError: if there are several source languages and lingua is not installed.
    """

    def __init__(self, pairs: Sequence[LanguagePair]):
        self.pairs = {(pair.source, pair.target): pair for pair in pairs}
        self.sources = [*dict.fromkeys(pair.source for pair in pairs)]
        self.codes = [*dict.fromkeys(code for pair in self.pairs for code in pair)]
        self._detector = _detector(self.sources) if len(self.sources) > 1 else None
        self.can_detect = len(self.sources) == 1 or self._detector is not None

    def find(self, code: str, among: Iterable[str]) -> str | None:
        """Finds a language by its code, in any case, or by the code without region and script.

        A code without them, such as `"zh"`, also finds the only one with them, such as `"zh-Hans"`.

        Args:
            code: a code, such as `"EN"` or `"en-US"`.
            among: the codes to search.

        Returns:
            The code in `among`, or `None`.
        """
        among = {known.lower(): known for known in among}
        variants = [name for lower, name in among.items() if _base(lower) == code.lower()]
        only = variants[0] if len(variants) == 1 else None
        return among.get(code.lower()) or among.get(_base(code)) or only

    def targets(self, source: str) -> list[str]:
        """The languages to which a language is translated.

        Args:
            source: its code.
        """
        return [target for known, target in self.pairs if known == source]

    def detect(self, text: str) -> list[Detected]:
        """Detects which of the source languages a text has. Needs `can_detect`.

        Args:
            text: the text.

        Returns:
            The languages, the most likely one first. A single source language is returned without a look at the text.
        """
        if self._detector is None:
            return [Detected(self.sources[0], 100.0)]
        if not any(map(str.isalpha, text)):
            return [Detected(code, 0.0) for code in self.sources]
        found = self._detector.compute_language_confidence_values(text)
        by_code = {_base(code): code for code in self.sources}
        return [Detected(by_code[one.language.iso_code_639_1.name.lower()], round(100 * one.value, 1)) for one in found]


def name_of(code: str) -> str:
    """The English name of a language, or the code itself if it is unknown.

    Args:
        code: the code.

    Example:

    >>> name_of("de"), name_of("zh-Hans"), name_of("xx")
    ('German', 'Chinese (Simplified)', 'xx')
    """
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _base(code):
    return code.split("-")[0].lower()


def _detector(codes):
    try:
        from lingua import IsoCode639_1, LanguageDetectorBuilder
    except ImportError as error:
        raise ValueError(
            "lingua, which tells source languages apart, is not installed: pip install 'keras-transformer-kit[serve]'"
        ) from error
    unknown = [code for code in codes if not hasattr(IsoCode639_1, _base(code).upper())]
    if unknown or len(set(map(_base, codes))) < len(codes):
        return None
    languages = [getattr(IsoCode639_1, _base(code).upper()) for code in codes]
    return LanguageDetectorBuilder.from_iso_codes_639_1(*languages).with_preloaded_language_models().build()
