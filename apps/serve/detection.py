"""Which of the languages of a server a text has."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_transformer.checks import needs
from keras_transformer.text.languages import lingua_detector, lingua_languages
from keras_transformer.text.translatable import is_translatable

#: How many times as likely as each other language a language must be to be certain. `docs/http.md` says why.
_CERTAIN = 3.0
#: Letters below which a text is short: too few to tell languages apart.
_SHORT = 15
#: Source languages up to which lingua loads its models at the start. It needs about 60 MB for each language.
_MOST_PRELOADED = 10


class Detected(NamedTuple):
    """The language of a text.

    Attributes:
        language: its code.
        confidence: percentage, from 0 to 100.
    """

    language: str
    confidence: float


class Detection(NamedTuple):
    """What is known about the language of a text.

    Attributes:
        shares: the probability of each language that can be detected. Empty for text that is no language.
        letters: number of letters of the text.
    """

    shares: dict[str, float]
    letters: int

    @property
    def best(self) -> str:
        """The most likely language; empty for text that is no language."""
        return max(self.shares, key=lambda code: self.shares[code], default="")

    @property
    def is_short(self) -> bool:
        """Whether the text has few letters."""
        return self.letters < _SHORT

    def is_certain(self, code: str, others: Iterable[str] = ()) -> bool:
        """Whether a language is much more likely than others.

        Args:
            code: the language.
            others: the others. Default: all. One that cannot be detected is as likely as can be.
        """
        share = self.shares.get(code, 0.0)
        rivals = (self.shares.get(other, 1.0) for other in others or self.shares if other != code)
        return share > 0 and share >= _CERTAIN * max(rivals, default=0.0)


class Detector:
    """Detects languages with lingua.

    Args:
        sources: the source languages of the server. A single one needs no lingua.
        codes: all languages of the server.

    Attributes:
        can_detect: whether one of the source languages can be detected.
        notes: what the operator should know: the source languages that lingua does not know, and groups of languages
            that are one for lingua, such as two scripts of Chinese.

    Raises:
        ValueError: if there are several source languages and lingua is not installed.
    """

    def __init__(self, sources: Sequence[str], codes: Sequence[str]):
        languages = _lingua_languages(codes, is_required=len(sources) > 1)
        unknown = [code for code in sources if not languages[code]]
        self.notes = [f"lingua does not know {', '.join(unknown)}"] if unknown else []
        if unknown and len(sources) == 1:
            languages = {sources[0]: ()}
        self._languages = {code: found for code, found in languages.items() if found or len(languages) == 1}
        self.can_detect = bool(self._languages.keys() & set(sources))
        groups = [self._group(code) for code in self._languages]
        self._groups = {code: max((one for one in groups if code in one), key=len) for code in self._languages}
        alike = [group for group in dict.fromkeys(self._groups.values()) if len(group) > 1]
        self.notes += [f"lingua cannot tell {' and '.join(group)} apart" for group in alike]
        distinct = {one for found in languages.values() for one in found}
        preload = 1 < len(sources) <= _MOST_PRELOADED
        self._lingua = lingua_detector(distinct, preload=preload) if len(distinct) > 1 else None

    def _group(self, code) -> tuple[str, ...]:
        mine = set(self._languages[code])
        return tuple(other for other, found in self._languages.items() if other == code or mine & set(found))

    def detect(self, texts: Sequence[str]) -> list[Detection]:
        """Detects the language of each text. A short text that is not certain takes the language of the others."""
        found = [self._detect(text) for text in texts]
        is_clear = [bool(one.shares) and not (one.is_short and not one.is_certain(one.best)) for one in found]
        if len(texts) == 1 or all(is_clear):
            return found
        clear = [*itertools.compress(found, is_clear)]
        shares = (_together(clear) if clear else self._detect("\n".join(texts))).shares
        return [one if clear else one._replace(shares=shares) for one, clear in zip(found, is_clear, strict=True)]

    def _detect(self, text) -> Detection:
        letters = sum(map(str.isalpha, text))
        if not is_translatable(text):
            return Detection({}, letters)
        if self._lingua is None:
            return Detection(dict.fromkeys(self._languages, 1.0), letters)
        values = {one.language: one.value for one in self._lingua.compute_language_confidence_values(text)}
        shares = {code: sum(values[one] for one in found) for code, found in self._languages.items()}
        return Detection(shares if any(shares.values()) else {}, letters)

    def detect_together(self, texts: Sequence[str]) -> Detection:
        """Detects the languages of several texts. Each counts by its letters."""
        return _together(self.detect(texts))

    def ranked(self, detection: Detection, codes: Iterable[str]) -> list[Detected]:
        """Some languages, the most likely one first, with their confidence among these.

        Those that cannot be detected are omitted, except in text that is no language.
        """
        if not detection.shares:
            return [Detected(code, 0.0) for code in codes]
        shares = {code: detection.shares[code] for code in codes if code in detection.shares}
        largest = {self._groups[code]: share for code, share in sorted(shares.items(), key=lambda item: item[1])}
        total = sum(largest.values()) or 1.0
        found = [Detected(code, round(100 * share / total, 1)) for code, share in shares.items()]
        return sorted(found, key=lambda one: -one.confidence)


def _together(detections: Sequence[Detection]) -> Detection:
    """The mean of the probabilities, weighted by letters."""
    letters = sum(one.letters for one in detections)
    shares: dict[str, float] = {}
    for one in detections:
        for code, share in one.shares.items():
            shares[code] = shares.get(code, 0.0) + share * one.letters / letters
    return Detection(shares, letters)


def _lingua_languages(codes, is_required) -> dict:
    """The languages of lingua of each code."""
    try:
        with needs("serve"):
            return {code: lingua_languages(code) for code in codes}
    except ValueError:
        if is_required:
            raise
        return dict.fromkeys(codes, ())
