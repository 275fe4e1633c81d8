"""Puts the inline elements of a sentence around the words of its translation."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.text.alignment import Alignment, Span
from keras_transformer.text.markup.elements import Element, kept_elements, places_of
from keras_transformer.text.markup.tokens import escape

#: Characters of scripts without spaces between words.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
#: A word, a number, a sign, or a character of such a script.
_UNITS = re.compile(rf"[{_UNSPACED}]|\d+|[^\W\d{_UNSPACED}]+|[^\w\s]")
#: How much clearer the attention to words of an element must be than to other words. Otherwise an element that has no
#: counterpart in the translation would extend over many words.
_MIN_MARGIN = 0.05


class _Placed(NamedTuple):
    """An element and its units in the translation, `first` to `last`. Without units, `last` is `first` - 1."""

    first: int
    last: int
    element: Element


class Projection:
    """Puts the elements of a sentence around the words of its translation.

    Each element contains consecutive words, and exactly once. Elements inside it stay inside it.

    Args:
        sentence: the sentence.
        begin: its place in the text of the block.
        elements: the elements of the sentence.
        translation: the translation.
        alignment: the alignment of both.
    """

    def __init__(self, sentence: str, begin: int, elements: list[Element], translation: str, alignment: Alignment):
        self._sentence, self._begin, self._elements, self._translation = sentence, begin, elements, translation
        places = {place - begin for element in elements for place in places_of(element)}
        copies = {copy for element in kept_elements(elements) for copy in self._copies(element)}
        self._source, self._target = _cut(_units(sentence), places), _cut(_units(translation), itertools.chain(*copies))
        self._is_sign = np.array([not translation[left].isalnum() for left, _ in self._target], dtype=bool)
        for copy in copies:  # Signs in them are like words.
            first, last = self._units_within(*copy)
            self._is_sign[first : last + 1] = False
        weights = alignment.between(self._source, self._target)
        #: For each target unit, the share of each source unit in it.
        self._weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)

    def html(self) -> str:
        """The translation as HTML."""
        return self._html(self._elements, 0, len(self._target) - 1, 0, len(self._translation))

    def _html(self, elements, first, last, begin, end):
        """The characters `begin` to `end` of the translation, which are the units `first` to `last`, with elements."""
        result = ""
        for placed in self._place(elements, first, last):
            element = placed.element
            if placed.last < placed.first:
                left = right = min(max(self._gap(placed), begin), end)
            else:
                left, right = self._target[placed.first][0], self._target[placed.last][1]
                # An element that goes on in another sentence extends to the end of this one.
                left, right = (left if element.starts_here else begin), (right if element.ends_here else end)
            inside = self._html(element.children, placed.first, placed.last, left, right)
            result += escape(self._translation[begin:left])
            result += element.before + inside + element.after if element.kept is None else element.kept
            if not (element.has_text or any(self._touches(element))) and not self._translation[right:].startswith(" "):
                result += " "
            begin = right
        return result + escape(self._translation[begin:end])

    def _gap(self, placed):
        """The place of an element without words between the units before and after it: beside the one it touches."""
        touches_left, _ = self._touches(placed.element)
        if placed.first and (touches_left or placed.first == len(self._target)):
            return self._target[placed.first - 1][1]
        return self._target[placed.first][0] if self._target else 0

    def _touches(self, element) -> tuple[bool, bool]:
        """Whether there is no white space before an element without words, and after it."""
        i = element.begin - self._begin
        return not self._sentence[:i][-1:].isspace(), not self._sentence[i:][:1].isspace()

    def _place(self, elements, first, last) -> list[_Placed]:
        """Places elements within the units `first` to `last`, in the order of the translation."""
        placed: list[_Placed] = []
        rated = [(element, self._ratings(element)) for element in elements if element.has_text]
        # Elements of several sentences first, since they need an end of this one. Then the clearest.
        rated.sort(key=lambda pair: (pair[0].order == 1, -max(pair[1][first : last + 1], default=0.0)))
        for element, ratings in rated:
            free = _free(first, last, placed)
            found = [_best(ratings, *interval, element) for interval in free]
            copies = [self._units_within(*copy) for copy in self._copies(element)] if element.kept else []
            copies = [(i, j) for i, j in copies if any(left <= i and j <= right for left, right in free)]
            if copies:
                i, j = max(copies, key=lambda units: ratings[units[0] : units[1] + 1].sum())
                placed.append(_Placed(i, j, element))
                continue
            if found:
                _, i, j = max(found)
            else:
                i, j = (first, first - 1) if element.ends_here else (last + 1, last)
            placed.append(self._without_signs(_Placed(i, j, element)))
        for element in elements:
            if not element.has_text:
                placed.append(_Placed(*self._between(element, first, last, placed), element))
        # Elements without words keep their order, and precede an element that begins at the same unit.
        return sorted(placed, key=lambda p: (p.element.order, p.first, p.last >= p.first))

    def _ratings(self, element) -> np.ndarray:
        """For each target unit how clearly it belongs to an element, in [-1, 1]."""
        begin, end = self._span(element)
        is_inside = np.array([left < end and right > begin for left, right in self._source], dtype=bool)
        inside = self._weights[:, is_inside].max(axis=1, initial=0.0)
        ratings = inside - self._weights[:, ~is_inside].max(axis=1, initial=0.0) - _MIN_MARGIN
        if self._sentence[begin:end].replace(" ", "").isalnum():
            # A sign belongs to it only between words that do.
            has_words = (ratings[~self._is_sign] > 0).any()
            return np.where(self._is_sign, np.minimum(ratings, -0.01 if has_words else -1.0), ratings)
        return ratings

    def _copies(self, element) -> list[Span]:
        """Where the translation contains the text of an element that is not translated."""
        begin, end = self._span(element)
        text = re.escape(self._sentence[begin:end])
        return [match.span() for match in re.finditer(text, self._translation)]

    def _units_within(self, begin, end) -> tuple[int, int]:
        """The first and the last unit in a part of the translation."""
        units = [k for k, (left, right) in enumerate(self._target) if left >= begin and right <= end]
        return units[0], units[-1]

    def _span(self, element) -> Span:
        return element.begin - self._begin, element.end - self._begin

    def _without_signs(self, placed) -> _Placed:
        """The units without signs at the ends, such as the full stop, if the element has none there."""
        first, last, element = placed
        begin, end = self._span(element)
        while first < last and element.starts_here and self._is_sign[first] and self._sentence[begin].isalnum():
            first += 1
        while first < last and element.ends_here and self._is_sign[last] and self._sentence[end - 1].isalnum():
            last -= 1
        return _Placed(first, last, element)

    def _between(self, element, first, last, placed):
        """The place of an element without words: the unit before which it is put, not inside another element."""
        i = element.begin - self._begin
        follows = sum(right <= i for _, right in self._source)  # Number of the source unit after the element.
        touches_left = self._touches(element)[0] and follows > 0
        if last < first or not self._source:
            return first, first - 1
        beside = follows - 1 if touches_left or follows == len(self._source) else follows
        unit = first + int(self._weights[first : last + 1, beside].argmax()) + (beside < follows)
        for other in placed:
            if other.first + other.element.starts_here <= unit <= other.last + (not other.element.ends_here):
                goes_after = touches_left or not other.element.starts_here
                unit = other.last + 1 if goes_after and other.element.ends_here else other.first
        return unit, unit - 1


def _units(text: str) -> list[Span]:
    """Words and signs, each as begin and end.

    Example:

    >>> _units("It's 你好.")
    [(0, 2), (2, 3), (3, 4), (5, 6), (6, 7), (7, 8)]
    """
    return [match.span() for match in _UNITS.finditer(text)]


def _cut(units: Iterable[Span], places: Iterable[int]) -> list[Span]:
    """Cuts units at places.

    Example:

    >>> _cut([(0, 5), (6, 9)], {2, 5, 8})
    [(0, 2), (2, 5), (6, 8), (8, 9)]
    """
    result, places = [], sorted(set(places))
    for begin, end in units:
        cuts = [begin, *(place for place in places if begin < place < end), end]
        result += itertools.pairwise(cuts)
    return result


def _free(first: int, last: int, placed: Sequence[_Placed]) -> list[tuple[int, int]]:
    """The intervals of `first` to `last` without those that are taken."""
    free = []
    for taken in sorted(placed, key=lambda taken: taken.first):
        if taken.first > first:
            free.append((first, taken.first - 1))
        first = max(first, taken.last + 1)
    return [*free, (first, last)] if first <= last else free


def _best(ratings: np.ndarray, first: int, last: int, element: Element) -> tuple[float, int, int]:
    """The interval of at least one unit with the largest sum of ratings.

    Args:
        ratings: one per unit.
        first: first unit that is free.
        last: last unit that is free.
        element: the element. If it starts in an earlier sentence, the interval starts with `first`; if it ends in a
            later one, it ends with `last`.

    Returns:
        The sum, the first unit and the last one.
    """
    sums = np.concatenate([[0.0], np.cumsum(ratings[first : last + 1])])
    # The sum of the units i to j is sums[j + 1] - sums[i].
    smallest = np.minimum.accumulate(sums[:-1]) if element.starts_here else np.zeros(len(sums) - 1)
    found = sums[1:] - smallest
    j = int(found.argmax()) if element.ends_here else len(found) - 1
    i = int(sums[: j + 1].argmin()) if element.starts_here else 0
    return float(found[j]), first + i, first + j
