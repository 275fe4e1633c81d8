"""The text of a block, split into sentences with their inline elements."""

import collections
import dataclasses
import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keras_transformer.apps.html.tokens import VOID, WITHOUT_TEXT, Token, escape
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.translate.alignment import Alignment
from keras_transformer.translate.elements import Element, tags_outside
from keras_transformer.translate.projection import Projection

#: What ends a sentence in text, but not in HTML.
_LINE_ENDS = re.compile(r"[\t\n\r\f\v\x1c-\x1e\x85\u2028\u2029]")
#: Maximum depth of inline elements. Deeper ones are handled as if they were not closed.
_MAX_DEPTH = 100


class Sentence(NamedTuple):
    """A sentence, its place in the text of the block, and the inline elements in it, with places in the block."""

    text: str
    begin: int
    elements: list[Element]

    def translated(self, translation: str, alignment: Alignment | None) -> str:
        """The HTML of the translation. Without elements, no alignment is needed."""
        if alignment is None or not self.elements:
            return escape(translation)
        return Projection(self.text, self.begin, self.elements, translation, alignment, escape).text()


class Block:
    """The text and the inline elements of a block.

    Args:
        tokens: the tokens of the block, without block tags.
    """

    def __init__(self, tokens: Sequence[Token]):
        self._text = ""
        #: For each character whether it belongs to an element that is not translated.
        self._is_kept: list[bool] = []
        stack = [Element(0, 0)]
        tags = [""]
        for token in tokens:
            if token.kind == "text":
                self._add_text(html.unescape(token.raw), is_kept=False)
            elif token.kind == "start" and len(stack) < _MAX_DEPTH:
                stack.append(Element(len(self._text), 0, before=token.raw))
                tags.append(token.tag)
            elif token.kind == "end" and token.tag in tags:
                while tags[-1] != token.tag:
                    self._dissolve(stack, tags)
                element = stack.pop()
                tags.pop()
                element.after, element.end = token.raw, len(self._text)
                stack[-1].children.append(self._trimmed(element))
            else:
                begin = len(self._text)
                if token.kind == "kept" and token.tag and token.tag not in WITHOUT_TEXT | VOID:
                    self._add_text(html.unescape(re.sub("<[^>]*>", "", token.raw)), is_kept=True)
                stack[-1].children.append(self._trimmed(Element(begin, len(self._text), kept=token.raw)))
        while len(stack) > 1:
            self._dissolve(stack, tags)
        self._elements = stack[0].children

    def _add_text(self, text, is_kept):
        self._text += text
        self._is_kept += [is_kept] * len(text)

    @staticmethod
    def _dissolve(stack, tags):
        """Makes a start tag without an end tag an element of its own, before its children."""
        element = stack.pop()
        tags.pop()
        stack[-1].children += [Element(element.begin, element.begin, kept=element.before), *element.children]

    def _trimmed(self, element) -> Element:
        """The element without white space at both ends. An element without text becomes one that is kept."""
        content = self._text[element.begin : element.end]
        if not content.strip() and element.kept is not None:
            return dataclasses.replace(element, end=element.begin)
        if not content.strip():
            inside = "".join(child.kept or "" for child in element.children)
            return Element(element.begin, element.begin, kept=element.before + inside + element.after)
        element.begin += len(content) - len(content.lstrip())
        element.end -= len(content) - len(content.rstrip())
        for child in element.children:
            if not child.has_text:
                child.begin = child.end = min(max(child.begin, element.begin), element.end)
        return element

    def split(self, splitter: SentenceSplitter, is_preformatted: bool) -> "tuple[list[str | Sentence], Sequence[str]]":
        """Splits the block into sentences and the HTML between them. Returns these parts, and warnings.

        Args:
            splitter: splits the text.
            is_preformatted: whether the end of a line is the end of a sentence.
        """
        text = self._text if is_preformatted else _LINE_ENDS.sub(" ", self._text)
        # No sentence ends inside an element that is not translated.
        masked = "".join(
            "x" if is_kept and not (character.isspace() or character.isalnum()) else character
            for character, is_kept in zip(text, self._is_kept, strict=True)
        )
        split = splitter.split(masked)
        sentences, begin = [], 0
        for piece in split.pieces:
            end = begin + len(piece.text)
            if piece.is_sentence and self._is_translatable(begin, end):
                elements = [*self._within(begin, end, self._elements)]
                sentences.append((begin, end, Sentence(text[begin:end], begin, elements)))
            begin = end
        return [part for part in self._interleave(sentences) if part != ""], split.warnings

    def _is_translatable(self, begin, end):
        return any(self._text[i].isalnum() and not self._is_kept[i] for i in range(begin, end))

    def _within(self, begin, end, elements, is_part=False) -> Iterator[Element]:
        """The parts of elements in a sentence. An element that contains all of it is outside.

        `is_part`: whether the elements are inside an element that has a part in the sentence.
        """
        for element in elements:
            if not element.has_text:
                is_inside = begin < element.begin < end or (is_part and begin <= element.begin <= end)
                if is_inside and not element.is_start_placed:
                    element.is_start_placed = element.is_end_placed = True
                    yield element
            elif element.begin < end and element.end > begin:
                if element.begin <= begin and end <= element.end:
                    yield from self._within(begin, end, element.children)
                    continue
                starts_here, ends_here = element.begin >= begin, element.end <= end
                element.is_start_placed |= starts_here
                element.is_end_placed |= ends_here
                yield Element(
                    max(element.begin, begin),
                    min(element.end, end),
                    element.before if starts_here else "",
                    element.after if ends_here else "",
                    element.kept if starts_here or element.kept is None else "",
                    [*self._within(begin, end, element.children, is_part=True)],
                    starts_here,
                    ends_here,
                )

    def _interleave(self, sentences) -> "Iterator[str | Sentence]":
        """The sentences, and between them the text and the tags that are not inside a sentence."""
        tags, place = collections.deque(tags_outside(self._elements)), 0
        for begin, end, sentence in [*sentences, (len(self._text), len(self._text), "")]:
            while tags and tags[0][0] <= begin:
                tag_begin, tag_end, raw = tags.popleft()
                yield escape(self._text[place:tag_begin])
                yield raw
                place = max(place, tag_end)
            yield escape(self._text[place:begin])
            yield sentence
            place = end
