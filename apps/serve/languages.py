"""The pairs of languages of a server."""

from collections.abc import Sequence

from keras_transformer.apps.serve.pairs import LanguagePair
from keras_transformer.text.languages import find_language, normal_code


class UnsupportedLanguage(ValueError):
    """Raised for languages that a server does not translate, in the words of LibreTranslate."""


class Languages:
    """The pairs of languages that a server translates.

    Args:
        pairs: the pairs.

    Attributes:
        pairs: the pairs, by source and target.
        sources: the source languages.
        codes: all languages.
    """

    def __init__(self, pairs: Sequence[LanguagePair]):
        self.pairs = {(pair.source, pair.target): pair for pair in pairs}
        self.sources = [*dict.fromkeys(pair.source for pair in pairs)]
        self.codes = [*dict.fromkeys(code for pair in self.pairs for code in pair)]

    def targets(self, source: str) -> list[str]:
        """The languages to which a language is translated.

        Args:
            source: its code.
        """
        return [target for known, target in self.pairs if known == source]

    def find_pair(self, source: str, target: str) -> tuple[str, str]:
        """Finds two languages by their codes, which may be written in other ways; see `find_language`.

        Args:
            source: code of a language.
            target: code of a language. The server may not translate the first to it.

        Returns:
            The two codes in `codes`.

        Raises:
            UnsupportedLanguage: if a language is unknown.
        """
        translated = [code for code in self.sources if find_language(target, self.targets(code))]
        known = find_language(source, translated) or self._find(source)
        return known, find_language(target, self.targets(known)) or self._find(target)

    def find_target(self, target: str) -> str:
        """Finds a target language by its code; see `find_pair`.

        Args:
            target: code of a language.
        """
        return find_language(target, [code for _, code in self.pairs]) or self._find(target)

    def _find(self, code):
        known = find_language(code, self.codes)
        if known is None:
            raise UnsupportedLanguage(f"{code} is not supported")
        return known


def name_of(code: str) -> str:
    """The English name of a language, or the code itself if it is unknown.

    Args:
        code: the code.

    Example:

    >>> name_of("de"), name_of("zh_hans"), name_of("xx")
    ('German', 'Chinese (Simplified)', 'xx')
    """
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(normal_code(code), sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code
