"""A sentence without the parts that are no language, and their way back into its translation."""

import re
from collections.abc import Iterable, Sequence

from keras_transformer.text.translatable import is_translatable
from keras_transformer.translate.alignment import Alignment, Span
from keras_transformer.translate.elements import Element
from keras_transformer.translate.projection import Projection

#: Brackets and quotation marks that belong to a part if they contain nothing else.
_PAIRS = ("()", "[]", "{}", "<>", '""', "''", "“”", "„“", "«»", "»«", "‘’", "‚‘", "**", "__", "``")
_CLOSING = ".,;:!?)]}»”’…。，；：！？、"
_OPENING = "([{«„‚¿¡-–—/"
#: A tag that does not separate words.
_INLINE_TAG = re.compile(r"</?(?!(?:br|hr|p|div|li|t[dhr]|h\d)\b)[A-Za-z][^<>]*(?<!/)>")
#: An ending that is attached to a placeholder or a name, as in `{name}'s` and `%dth`.
_ENDING = re.compile(r"['’]?[a-z]{1,3}(?!\w)")
_END_OF_PREFIX = re.compile(r"[.,;:!?…]*(?:\s+|$)")


class KeptText:
    """A translation with parts of its source.

    Attributes:
        text: the translation.
        kept: `(begin, end)` of each part in the source and in the translation.
    """

    def __init__(self):
        self.text = ""
        self.kept: list[tuple[Span, Span]] = []

    def keep(self, text: str, place: int = 0) -> "KeptText":
        """Adds a part of the source, which is at `place` there."""
        if text:
            begin = len(self.text)
            self.text += text
            self.kept.append(((place, place + len(text)), (begin, len(self.text))))
        return self

    def add(self, other: "KeptText", place: int) -> None:
        """Adds the translation of a part of the source, which is at `place` there."""
        begin = len(self.text)
        self.text += other.text
        for source, target in other.kept:
            self.kept.append(
                ((source[0] + place, source[1] + place), (target[0] + begin, target[1] + begin)),
            )


class ProtectedSentence:
    """A sentence without some of its parts.

    Parts at the beginning and at the end stay there. The others come back beside the words of the translation that
    correspond to their neighbours.

    Args:
        sentence: the sentence.
        parts: `(begin, end)` of the parts, which may overlap.

    Attributes:
        text: the rest, for the model. Empty if it contains no language. Then the sentence is not translated.
        needs_alignment: whether a part is neither at the beginning nor at the end.

    Example:

    >>> sentence = ProtectedSentence("I love dogs 🐶.", [(12, 13)])
    >>> sentence.text, sentence.needs_alignment
    ('I love dogs.', True)
    """

    def __init__(self, sentence: str, parts: Iterable[Span]):
        self._sentence = sentence
        self._elements: list[Element] = []
        self._places: list[Span] = []
        self.text = ""
        spans = _merged(sentence, [_extended(sentence, span) for span in _merged(sentence, sorted(parts))])
        begin, spans = _skip_first(sentence, spans)
        end, spans = _skip_last(sentence, spans)
        self._prefix, self._suffix = sentence[:begin], sentence[end:]
        self._take_out(spans, begin, end)
        if not is_translatable(self.text):
            self.text = ""

    @property
    def length(self) -> int:
        """Number of characters of the sentence."""
        return len(self._sentence)

    @property
    def needs_alignment(self) -> bool:
        """See the class."""
        return bool(self.text and self._elements)

    def _take_out(self, spans, place, end):
        for left, right in spans:
            space, skipped = _space_between(self._sentence, left, right)
            self.text += self._sentence[place:left]
            self.text = self.text.rstrip() + space
            neighbours = self._sentence[left - 1 : left], self._sentence[right : right + 1]
            kept = self._sentence[left:right]
            self._elements.append(Element(len(self.text), len(self.text), kept=kept, neighbours=neighbours))
            self._places.append((left, right))
            place = skipped
        self.text += self._sentence[place:end]

    def joined(self, translation: str, alignment: Alignment | None) -> KeptText:
        """Puts the parts into the translation of `text`, whose alignment is `None` if it is not needed."""
        result = KeptText()
        if not self.text:
            return result.keep(self._sentence)
        result.keep(self._prefix)
        pieces: list[tuple[str, Element | None]] = [(translation, None)]
        if alignment is not None and self._elements:
            pieces = Projection(self.text, 0, self._elements, translation, alignment, str).pieces()
        places = {id(element): place for element, place in zip(self._elements, self._places, strict=True)}
        for text, element in pieces:
            if element is None:
                result.text += text
            else:
                result.keep(text, places[id(element)][0])
        return result.keep(self._suffix, len(self._sentence) - len(self._suffix))


def _merged(text: str, spans: Sequence[Span]) -> list[Span]:
    """Makes parts that overlap, or with only white space between them, one part."""
    result: list[Span] = []
    for begin, end in spans:
        if result and not text[result[-1][1] : begin].strip():
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((begin, end))
    return result


def _extended(text: str, span: Span) -> Span:
    """Extends a part over an ending, and over brackets and quotation marks that contain nothing else.

    Example:

    >>> _extended("a ({b}).", (3, 6)), _extended("{b}'s dog", (0, 3))
    ((2, 7), (0, 5))
    """
    begin, end = span
    if text[begin] in "{$%@#" and not text.startswith("{\\", begin):
        ending = _ENDING.match(text, end)
        end = ending.end() if ending else end
    while begin > 0 and text[begin - 1] + text[end : end + 1] in _PAIRS:
        begin, end = begin - 1, end + 1
    return begin, end


def _skip_first(text, spans):
    """The end of a part at the beginning of a sentence, with the signs and the white space after it; and the others."""
    if spans and not text[: spans[0][0]].strip():
        after = _END_OF_PREFIX.match(text, spans[0][1])
        if after:
            return after.end(), spans[1:]
        if _is_tag(text, spans[0]) and not any(text.startswith("</", begin) for begin, _ in spans[1:-1]):
            return spans[0][1], spans[1:]
    return 0, spans


def _skip_last(text, spans):
    """The begin of a part at the end of a sentence, with the white space before it; and the others."""
    if spans and not text[spans[-1][1] :].strip():
        before = text[: spans[-1][0]]
        if before[-1:].isspace() or before[-1:] in _CLOSING or _is_tag(text, spans[-1]):
            return len(before.rstrip()), spans[:-1]
    return len(text), spans


def _is_tag(text, span):
    r"""Whether a part is a tag, such as `<i>` or `{\an8}`, which may be attached to the words that it belongs to."""
    return text.startswith(("<", "{\\"), span[0])


def _space_between(text: str, begin: int, end: int) -> tuple[str, int]:
    """The white space in the place of a part and of the white space around it, and the place where the text goes on."""
    before, after = text[:begin], text[end:]
    place = end + len(after) - len(after.lstrip())
    left, right = before.rstrip()[-1:], after.lstrip()[:1]
    has_before, has_after = before != before.rstrip(), place > end
    if not left or not right:
        return "", place
    if has_before:
        return ("" if right in (".,;:!?)" if has_after else _CLOSING) else " "), place
    if has_after:
        return ("" if left in _OPENING else " "), place
    if left.isalnum() and right.isalnum():
        part = text[begin:end]
        is_attached = _INLINE_TAG.fullmatch(part) or not any(map(str.isprintable, part))  # Or invisible characters.
        return ("" if is_attached else " "), place
    return (" " if right.isalnum() and left in _CLOSING else ""), place
