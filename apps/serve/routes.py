"""Which pair of languages translates each text of a request."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

from starlette.exceptions import HTTPException

from keras_transformer.apps.html.html_text import plain_text
from keras_transformer.apps.serve.detection import Detected, Detector
from keras_transformer.apps.serve.pairs import LanguagePair, TranslatedText
from keras_transformer.text.languages import find_language, normal_code, parse_language, same_language


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

    The codes of requests may be written in other ways than those of the server; see `find_language`.

    Args:
        pairs: the pairs of languages that the server translates.

    Attributes:
        pairs: the pairs, by source and target.
        codes: all languages.
        notes: what the operator should know about the detection of languages.

    Raises:
        ValueError: see `Detector`.
    """

    def __init__(self, pairs: Sequence[LanguagePair]):
        self.pairs = {(pair.source, pair.target): pair for pair in pairs}
        self.codes = [*dict.fromkeys(code for pair in self.pairs for code in pair)]
        self._targets: dict[str, list[str]] = {}
        for source, target in self.pairs:
            self._targets.setdefault(source, []).append(target)
        self._sources = [*self._targets]
        self._known = {parse_language(code).base for code in self.codes}
        self._detector = Detector(self._sources, self.codes)
        self.notes = self._detector.notes if len(self._sources) > 1 else []

    def targets(self, source: str) -> list[str]:
        """The languages to which a language is translated."""
        return self._targets.get(source, [])

    @functools.lru_cache(1000)  # noqa: B019, there is one router for the whole life of a server.
    def named(self, source: str, target: str) -> Route:
        """The route from one language to another. Text that is already in the target language stays as it is.

        Raises:
            HTTPException: if the server does not translate this pair.
        """
        for code in (source, target):
            if parse_language(code).base not in self._known:
                raise HTTPException(400, f"{code} is not supported")
        translated = [code for code in self._sources if find_language(target, self.targets(code))]
        source = find_language(source, translated) or self._find(source)
        route = self._route(source, find_language(target, self.targets(source)) or self._find(target))
        if route.problem:
            raise HTTPException(400, route.problem)
        return route

    def detected(self, texts: Sequence[str], target: str, is_html: bool = False) -> list[Route]:
        """The route of each of several texts, whose languages are detected.

        Args:
            texts: the texts.
            target: code of the target language.
            is_html: whether the texts are HTML.

        Raises:
            HTTPException: if the languages cannot be detected, the target is unknown, or no text is in a language
                that the server translates to it.
        """
        self._require_detection()
        target = find_language(target, dict.fromkeys(code for _, code in self.pairs)) or self._find(target)
        detections = self._detector.detect([*map(plain_text, texts)] if is_html else texts)
        routes = [self._detected(detection, target) for detection in detections]
        if all(route.problem for route in routes):
            raise HTTPException(400, routes[0].problem)
        return routes

    def languages_of(self, texts: Sequence[str]) -> list[Detected]:
        """The source languages, the most likely one of these texts first, and another one if it is certain.

        Raises:
            HTTPException: if the languages cannot be detected.
        """
        self._require_detection()
        detection, codes = self._detector.detect_together(texts), [*self._sources]
        if detection.best not in codes and detection.is_certain(detection.best):
            codes.append(detection.best)
        return self._detector.ranked(detection, codes)

    def _find(self, code) -> str:
        known = find_language(code, self.codes)
        if known is None:
            raise HTTPException(400, f"{code} is not supported")
        return known

    def _require_detection(self):
        if not self._detector.can_detect:
            raise HTTPException(400, "auto is not supported")

    def _detected(self, detection, target) -> Route:
        """The route of a text. Uncertain languages give way to one that is translated to the target language."""
        usable = [code for code in self._sources if (code, target) in self.pairs]
        language = detection.best
        if not language and not usable:
            return Route(None, Detected(self._sources[0], 0.0))
        is_other = language not in (target, *usable) and not detection.is_short
        if usable and not (is_other and detection.is_certain(language, (*detection.shares, *usable))):
            language = max(usable, key=lambda code: detection.shares.get(code, 0.0))
            if detection.is_certain(target, usable):
                language = target
        ranked = self._detector.ranked(detection, dict.fromkeys((*self._sources, language)))
        confidence = {one.language: one.confidence for one in ranked}.get(language, 0.0)
        return self._route(language, target)._replace(detected=Detected(language, confidence))

    def _route(self, source, target) -> Route:
        pair = self.pairs.get((source, target))
        if pair or same_language(source, target):
            return Route(pair)
        names = [f"{name_of(code)} ({code})" for code in (target, source)]
        return Route(None, problem="{} is not available as a target language from {}".format(*names))


def name_of(code: str) -> str:
    """The English name of a language, or the code itself if it is unknown.

    Example:

    >>> name_of("de"), name_of("zh_hans"), name_of("xx")
    ('German', 'Chinese (Simplified)', 'xx')
    """
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(normal_code(code), sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


async def translate(routes: Sequence[Route], texts: Sequence[str], n_best: int, is_html: bool) -> list[TranslatedText]:
    """Translates each text by the pair of its route; see `LanguagePair.translate`.

    Args:
        routes: the route of each text.
        texts: the texts.
        n_best: number of hypotheses per text. A pair whose search has fewer gives those.
        is_html: whether the texts are HTML.
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
