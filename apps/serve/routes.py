"""Which pair of languages translates each text of a request."""

from collections.abc import Sequence
from typing import NamedTuple

from keras_transformer.apps.serve.detection import Detected, Detector
from keras_transformer.apps.serve.languages import Languages, UnsupportedLanguage, name_of
from keras_transformer.apps.serve.pairs import LanguagePair, TranslatedText
from keras_transformer.text.languages import same_language


class Route(NamedTuple):
    """What is done with a text.

    Attributes:
        pair: translates it. `None`: it is returned as it is.
        detected: its language, if that was detected.
        problem: why it is returned as it is, although it is not in the target language.
    """

    pair: LanguagePair | None
    detected: Detected | None = None
    problem: str | None = None


class Router:
    """Chooses the pairs of languages for the texts of requests.

    Args:
        languages: the languages of the server.

    Attributes:
        notes: what the operator should know about the detection of languages.

    Raises:
        ValueError: see `Detector`.
    """

    def __init__(self, languages: Languages):
        self._languages = languages
        self._detector = Detector(languages.sources, languages.codes)
        self.notes = _notes(self._detector) if len(languages.sources) > 1 else []

    def named(self, source: str, target: str) -> Route:
        """The route from one language to another. Text that is already in the target language stays as it is.

        Args:
            source: code of the source language.
            target: code of the target language.

        Raises:
            UnsupportedLanguage: if the server does not translate this pair.
        """
        route = self._route(*self._languages.find_pair(source, target))
        if route.problem:
            raise UnsupportedLanguage(route.problem)
        return route

    def detected(self, texts: Sequence[str], target: str) -> list[Route]:
        """The route of each of several texts, whose languages are detected.

        Args:
            texts: plain texts.
            target: code of the target language.

        Raises:
            UnsupportedLanguage: if the languages cannot be detected, the target is unknown, or no text is in a language
                that the server translates to it.
        """
        self._require_detection()
        target = self._languages.find_target(target)
        routes = [self._detected(detection, target) for detection in self._detector.detect(texts)]
        if all(route.problem for route in routes):
            raise UnsupportedLanguage(routes[0].problem)
        return routes

    def languages_of(self, texts: Sequence[str]) -> list[Detected]:
        """The languages of several texts together, the most likely one first.

        Args:
            texts: plain texts.

        Returns:
            The source languages, and another language of the server if it is the certain one.

        Raises:
            UnsupportedLanguage: if the languages cannot be detected.
        """
        self._require_detection()
        detection, codes = self._detector.detect_together(texts), [*self._languages.sources]
        if detection.best not in codes and detection.is_certain(detection.best):
            codes.append(detection.best)
        return self._detector.ranked(detection, codes)

    def _require_detection(self):
        if not self._detector.can_detect:
            raise UnsupportedLanguage("auto is not supported")

    def _detected(self, detection, target) -> Route:
        """The route of a text. Uncertain languages give way to one that is translated to the target language."""
        sources = self._languages.sources
        usable = [code for code in sources if (code, target) in self._languages.pairs]
        language = detection.best
        if not language and not usable:
            return Route(None, Detected(sources[0], 0.0))
        is_other = language not in (target, *usable) and not detection.is_short
        if usable and not (is_other and detection.is_certain(language, (*detection.shares, *usable))):
            language = max(usable, key=lambda code: detection.shares.get(code, 0.0))
            if detection.is_certain(target, usable):
                language = target
        ranked = self._detector.ranked(detection, dict.fromkeys((*sources, language)))
        confidence = {one.language: one.confidence for one in ranked}.get(language, 0.0)
        return self._route(language, target)._replace(detected=Detected(language, confidence))

    def _route(self, source, target) -> Route:
        pair = self._languages.pairs.get((source, target))
        if pair or same_language(source, target):
            return Route(pair)
        names = [f"{name_of(code)} ({code})" for code in (target, source)]
        return Route(None, problem="{} is not available as a target language from {}".format(*names))


async def translate(routes: Sequence[Route], texts: Sequence[str], n_best: int, is_html: bool) -> list[TranslatedText]:
    """Translates each text by the pair of its route.

    Args:
        routes: the route of each text.
        texts: the texts.
        n_best: number of hypotheses per text. A pair whose search has fewer gives those.
        is_html: whether the texts are HTML.

    Returns:
        The translations, in the order of the texts.

    Raises:
        QueueFull: see `LanguagePair.translate`.
        TooManySentences: see `LanguagePair.translate`.
    """
    found = {
        i: TranslatedText([text], [route.problem] if route.problem else [], [0.0])
        for i, (route, text) in enumerate(zip(routes, texts, strict=True))
        if route.pair is None
    }
    for pair in dict.fromkeys(route.pair for route in routes if route.pair):
        places = [i for i, route in enumerate(routes) if route.pair is pair]
        count = min(n_best, pair.translator.max_n_best)
        translated = await pair.translate([texts[i] for i in places], count, is_html)
        found |= zip(places, translated, strict=True)
    return [found[i] for i in range(len(texts))]


def _notes(detector: Detector) -> list[str]:
    """What the detection of the languages of a server cannot do."""
    unknown = [f"lingua does not know {', '.join(detector.unknown)}"] if detector.unknown else []
    return unknown + [f"lingua cannot tell {' and '.join(group)} apart" for group in detector.alike]
