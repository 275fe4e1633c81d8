"""Puts the inline elements of a sentence around the words of its translation."""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.translate.alignment import Alignment, Span
from keras_transformer.translate.elements import Element, kept_elements, places_of

#: Characters of scripts without spaces between words.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
#: A word, a number, a sign, or a character of such a script.
_UNITS = re.compile(rf"[{_UNSPACED}]|\d+|[^\W\d{_UNSPACED}]+|[^\w\s]")
#: How much clearer the attention to words of an element must be than to other words. Otherwise an element that has no
#: counterpart in the translation would extend over many words.
_MIN_MARGIN = 0.05
#: Signs without white space after them, and signs without white space before them.
_OPENING = "([{«„‚“‘¿¡"
_CLOSING = ".,;:!?)]}»”’…。，；：！？、"


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
        escape: writes a part of the translation, such as HTML. For plain text: `str`.
    """

    def __init__(
        self,
        sentence: str,
        begin: int,
        elements: list[Element],
        translation: str,
        alignment: Alignment,
        escape: Callable[[str], str],
    ):
        self._escape = escape
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

    def text(self) -> str:
        """The translation with the elements."""
        return "".join(piece for piece, _ in self.pieces())

    def pieces(self) -> "list[tuple[str, Element | None]]":
        """The parts of `text`, and for each of the elements without words that element."""
        return self._pieces(self._elements, 0, len(self._target) - 1, 0, len(self._translation))

    def _pieces(self, elements, first, last, begin, end):
        """The characters `begin` to `end` of the translation, which are the units `first` to `last`, with elements."""
        result: list[tuple[str, Element | None]] = []
        for placed in self._place(elements, first, last):
            element = placed.element
            if placed.last < placed.first:
                left = right = min(max(self._gap(placed), begin), end)
            else:
                left, right = self._target[placed.first][0], self._target[placed.last][1]
                # An element that goes on in another sentence extends to the end of this one.
                left, right = (left if element.starts_here else begin), (right if element.ends_here else end)
            if left > begin:
                result.append((self._escape(self._translation[begin:left]), None))
            begin = right
            if placed.last < placed.first and element.kept is not None:
                before, after = self._spaces(element, left, result)
                result += [(before, None), (element.kept, element), (after, None)]
                begin = self._after_joint(element, right, end)
            elif element.kept is not None:
                result.append((element.kept, None))
            else:
                inside = self._pieces(element.children, placed.first, placed.last, left, right)
                result += [(element.before, None), *inside, (element.after, None)]
        return [*result, (self._escape(self._translation[begin:end]), None)]

    def _gap(self, placed):
        """The place of an element without words between the units before and after it: beside the one it touches."""
        touches_left = not self._neighbours(placed.element)[0].isspace()
        if placed.first and (touches_left or placed.first == len(self._target)):
            return self._target[placed.first - 1][1]
        return self._target[placed.first][0] if self._target else 0

    def _neighbours(self, element) -> tuple[str, str]:
        """The characters before and after an element. Empty at the ends of the sentence."""
        begin, end = self._span(element)
        return element.neighbours or (self._sentence[:begin][-1:], self._sentence[end:][:1])

    def _spaces(self, element, place, written) -> tuple[str, str]:
        """The white space that an element without words needs at a place of the translation."""
        before, after = self._neighbours(element)
        left, right = self._translation[:place][-1:], self._translation[place:][:1]
        beside = next((found for text, found in reversed(written) if text), None)
        if beside is not None:  # Another element is at this place.
            left = (beside.kept or left)[-1:]
        needs_before = not left.isspace() and _is_apart(before, left, _OPENING)
        return " " * needs_before, " " * _is_apart(after, right, _CLOSING)

    def _after_joint(self, element, place, end) -> int:
        """The place after an element and the white space that the sentence has in its place only."""
        i = element.begin - self._begin
        is_joint = not any(map(str.isspace, self._neighbours(element))) and " " in self._sentence[max(i - 1, 0) : i + 1]
        while is_joint and place < end and self._translation[place].isspace():
            place += 1
        return place

    def _place(self, elements, first, last) -> list[_Placed]:
        """Places elements within the units `first` to `last`, in the order of the translation."""
        placed: list[_Placed] = []
        rated = [(element, self._ratings(element)) for element in elements if element.has_text]
        # Elements of several sentences first, since they need an end of this one. Then the clearest.
        rated.sort(key=lambda pair: (pair[0].order == 1, -max(pair[1][first : last + 1], default=0.0)))
        unplaced = [element for element in elements if not element.has_text]
        for element, ratings in rated:
            free = _free(first, last, placed)
            if copy := self._copy(element, ratings, free):
                placed.append(_Placed(*copy, element))
                continue
            rating, i, j = max((_best(ratings, *interval, element) for interval in free), default=(0.0, None, None))
            if element.kept and rating <= 0:  # It would take the place of words that are not its own.
                unplaced.append(element)
                continue
            if i is None or j is None:
                i, j = (first, first - 1) if element.ends_here else (last + 1, last)
            placed.append(self._without_signs(_Placed(i, j, element)))
        for element in unplaced:
            placed.append(_Placed(*self._between(element, first, last, placed), element))
        # Elements without words keep their order, and precede an element that begins at the same unit.
        return sorted(placed, key=lambda p: (p.element.order, p.first, p.last >= p.first))

    def _copy(self, element, ratings, free) -> Span | None:
        """The units of the text of an element that is not translated, if the translation contains it."""
        copies = [self._units_within(*copy) for copy in self._copies(element)] if element.kept else []
        copies = [(i, j) for i, j in copies if any(left <= i and j <= right for left, right in free)]
        return max(copies, key=lambda units: ratings[units[0] : units[1] + 1].sum(), default=None)

    def _ratings(self, element) -> np.ndarray:
        """For each target unit how clearly it belongs to an element, in [-1, 1]."""
        begin, end = self._span(element)
        is_inside = np.array([left < end and right > begin for left, right in self._source], dtype=bool)
        inside = self._weights[:, is_inside].max(axis=1, initial=0.0)
        ratings = inside - self._weights[:, ~is_inside].max(axis=1, initial=0.0) - _MIN_MARGIN
        # A sign that the element has at neither end belongs to it only between words that do.
        is_other = self._is_sign & ~self._has_sign_of(element)
        has_words = (ratings[~self._is_sign] > 0).any()
        return np.where(is_other, np.minimum(ratings, -0.01 if has_words else -1.0), ratings)

    def _has_sign_of(self, element) -> np.ndarray:
        """For each target unit whether an element may begin or end with it. An element with signs may with any sign.

        If an element is not translated, the signs are its own.
        """
        text = self._sentence[slice(*self._span(element))]
        if element.kept is None:
            return np.full(len(self._target), not text.replace(" ", "").isalnum())
        signs = [
            (self._translation[left] == text[0] and not self._translation[:left][-1:].isalnum())
            or (self._translation[left] == text[-1] and not self._translation[right:][:1].isalnum())
            for left, right in self._target
        ]
        return np.array(signs, dtype=bool)

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
        is_own = self._has_sign_of(element) if element.kept else np.zeros(len(self._target), dtype=bool)
        is_other = self._is_sign & ~is_own
        has_first, has_last = (element.kept or self._sentence[i].isalnum() for i in (begin, end - 1))
        while first < last and element.starts_here and is_other[first] and has_first:
            first += 1
        while first < last and element.ends_here and is_other[last] and has_last:
            last -= 1
        return _Placed(first, last, element)

    def _between(self, element, first, last, placed):
        """The place of an element without words of its own: the unit before which it is put, not inside another one."""
        begin, end = self._span(element)
        before, after = sum(right <= begin for _, right in self._source), sum(left < end for left, _ in self._source)
        touches_left = not self._neighbours(element)[0].isspace() and before > 0
        if last < first or not self._source:
            return first, first - 1
        is_after = touches_left or after == len(self._source)
        unit = first + int(self._weights[first : last + 1, before - 1 if is_after else after].argmax()) + is_after
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


def _is_apart(neighbour: str, found: str, attached: str) -> bool:
    """Whether there is white space between an element and the character `found` beside it in the translation.

    `neighbour` is the character beside it in the sentence. `attached` are signs without white space on this side.
    """
    if not found or found.isspace() or not neighbour:
        return False
    if neighbour.isspace():
        return found not in attached
    return found.isalnum() and not neighbour.isalnum()


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
