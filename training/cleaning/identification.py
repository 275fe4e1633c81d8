"""The language of a sentence, with lingua."""

import itertools

from keras_transformer.checks import needs
from keras_transformer.text.languages import codes_of_lingua, lingua_detector, lingua_languages

#: The languages that crawled text has most often, with which the languages of the corpus are compared.
COMMON_LANGUAGES = ("en", "ru", "es", "de", "fr", "ja", "pt", "it", "zh", "tr")


class LanguageRule:
    """Keeps pairs whose sides are in the languages of the corpus. A side without letters is kept.

    Raises:
        ValueError: if lingua is not installed, or a language is missing or unknown to lingua.
    """

    def __init__(self, source: str | None, target: str | None):
        with needs("clean"):
            sides = [lingua_languages(code or "") for code in (source, target)]
        if not all(sides) or set(sides[0]) & set(sides[1]):
            raise ValueError(
                "`cleaning.languages` requires `source_language` and `target_language`, two languages that lingua "
                f"knows: {', '.join(codes_of_lingua())}. "
                f"Received: source_language={source!r}, target_language={target!r}"
            )
        self._sides = sides
        known = dict.fromkeys(itertools.chain(*sides, *map(lingua_languages, COMMON_LANGUAGES)))
        self._detector = lingua_detector(known)

    def __call__(self, source: str, target: str) -> bool:
        return all(self._is_in(line, side) for line, side in zip((source, target), self._sides, strict=True))

    def _is_in(self, line, side):
        found = self._detector.detect_language_of(line)
        return found is None or found in side
