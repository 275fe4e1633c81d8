"""The language of a sentence, with lingua."""

#: The languages that crawled text has most often, with which the languages of the corpus are compared.
COMMON_LANGUAGES = ("en", "ru", "es", "de", "fr", "ja", "pt", "it", "zh", "tr")


class LanguageRule:
    """Keeps pairs whose sides are in the languages of the corpus. A side without letters is kept.

    Args:
        source: code of the source language.
        target: code of the target language.

    Raises:
        ValueError: if lingua is not installed, or a language is missing or unknown to lingua.
    """

    def __init__(self, source: str | None, target: str | None):
        try:
            from lingua import IsoCode639_1, LanguageDetectorBuilder
        except ImportError as error:
            raise ValueError(
                "`cleaning.languages` requires lingua: pip install 'keras-transformer-kit[clean]'"
            ) from error
        codes = [(code or "").split("-")[0].upper() for code in (source, target)]
        if not all(hasattr(IsoCode639_1, code) for code in codes) or codes[0] == codes[1]:
            raise ValueError(
                "`cleaning.languages` requires `source_language` and `target_language`, two languages that lingua "
                f"knows. Received: source_language={source!r}, target_language={target!r}"
            )
        known = dict.fromkeys([*codes, *map(str.upper, COMMON_LANGUAGES)])
        self._codes = codes
        self._detector = LanguageDetectorBuilder.from_iso_codes_639_1(
            *(getattr(IsoCode639_1, code) for code in known)
        ).build()

    def __call__(self, source: str, target: str) -> bool:
        return all(self._is_in(line, code) for line, code in zip((source, target), self._codes, strict=True))

    def _is_in(self, line, code):
        found = self._detector.detect_language_of(line)
        return found is None or found.iso_code_639_1.name == code
