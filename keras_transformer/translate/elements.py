"""The inline elements of a block of text."""

import dataclasses
from collections.abc import Iterable, Iterator


@dataclasses.dataclass
class Element:
    """An inline element in the text of a block, or its part in one sentence.

    Attributes:
        begin, end: the part of the text that it contains, without white space at both ends.
        before, after: its start tag and its end tag. Empty in a sentence in which it does not start or end.
        kept: the whole element, if its content is not translated.
        children: the elements inside it.
        starts_here, ends_here: for a part, whether the element starts and ends in this sentence.
        is_start_placed, is_end_placed: for a whole element, whether a sentence contains its start tag and its end tag.
        neighbours: the characters before and after it, if they differ from those in the text.
    """

    begin: int
    end: int
    before: str = ""
    after: str = ""
    kept: str | None = None
    children: "list[Element]" = dataclasses.field(default_factory=list)
    starts_here: bool = True
    ends_here: bool = True
    is_start_placed: bool = False
    is_end_placed: bool = False
    neighbours: tuple[str, str] | None = None

    @property
    def order(self) -> int:
        """0 if it starts in an earlier sentence, 2 if it ends in a later one, 1 otherwise."""
        return 1 if self.starts_here and self.ends_here else 0 if self.ends_here else 2

    @property
    def has_text(self) -> bool:
        """Whether it contains words. The others, such as images, are put between words."""
        return self.end > self.begin


def tags_outside(elements: Iterable[Element]) -> Iterator[tuple[int, int, str]]:
    """The tags that no sentence contains, in their order.

    Yields:
        Begin and end of the part of the text that the tag replaces, which is empty for most tags; and the HTML.
    """
    for element in elements:
        if element.kept is not None:
            if not element.is_start_placed:
                yield element.begin, element.end, element.kept
            continue
        if not element.is_start_placed:
            yield element.begin, element.begin, element.before
        yield from tags_outside(element.children)
        if not element.is_end_placed:
            yield element.end, element.end, element.after


def kept_elements(elements: Iterable[Element]) -> Iterator[Element]:
    """The elements with text that is not translated, those inside others included."""
    for element in elements:
        if element.kept and element.has_text:
            yield element
        yield from kept_elements(element.children)


def places_of(element: Element) -> Iterator[int]:
    """Begin and end of an element and of those inside it."""
    yield from (element.begin, element.end)
    for child in element.children:
        yield from places_of(child)
