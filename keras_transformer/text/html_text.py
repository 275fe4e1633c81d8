"""HTML: splits it into sentences, and carries the inline tags to the words of the translation."""

import contextlib
import dataclasses
import html
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from typing import NamedTuple

import numpy as np

from keras_transformer.text.alignment import Alignment, Span
from keras_transformer.text.sentences import SentenceSplitter

#: Elements that begin a new block of text.
_BLOCKS = frozenset(
    "address article aside blockquote body br button caption center col colgroup datalist dd details dialog dir div dl "
    "dt fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link "
    "main menu meta nav noframes noscript ol optgroup option p pre search section select summary table tbody td "
    "template tfoot th thead title tr ul".split()
)
#: Elements without content.
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
#: Elements whose end tag is often omitted.
_UNCLOSED = frozenset("dd dt li option p td th tr".split())
#: Elements whose content is not translated, although it is part of the sentence.
_UNTRANSLATED = frozenset("code kbd math samp var".split())
#: Elements whose content is not text.
_WITHOUT_TEXT = frozenset("applet audio canvas iframe noembed object script style svg textarea video xmp".split())
#: What ends a sentence in text, but not in HTML.
_LINE_ENDS = re.compile(r"[\t\n\r\f\v\x1c-\x1e\x85\u2028\u2029]")
#: Characters of scripts without spaces between words.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
#: A word, a number, a sign, or a character of such a script.
_UNITS = re.compile(rf"[{_UNSPACED}]|\d+|[^\W\d{_UNSPACED}]+|[^\w\s]")


#: Maximum depth of inline elements. Deeper ones are handled as if they were not closed.
_MAX_DEPTH = 100
#: How much clearer the attention to words of an element must be than to other words. Otherwise an element that has no
#: counterpart in the translation would extend over many words.
_DOUBT = 0.05


class HtmlText:
    """An HTML text, split into sentences.

    Tags, attributes, comments and white space stay as they are. Each block, such as `<p>`, is split into sentences. The
    tags of inline elements, such as `<b>`, `<a>` and `<img>`, are put around or between the words of the translation
    that correspond to theirs. The content of elements such as `<code>` and `<script>`, and of elements with
    `translate="no"` or the class `notranslate`, is not translated. Tags that are not closed or not opened are kept too.

    Args:
        text: the HTML: a document or a part of one.
        splitter: splits the text of a block into sentences.

    Attributes:
        sentences: the sentences to translate.
        needs_alignment: for each sentence, whether it contains inline tags, so that `join` needs its alignment.
        warnings: one message for each sentence that was cut.

    Example:

    >>> page = HtmlText('<p>A <b>dog</b> runs. <br> It &amp; I play.</p>', SentenceSplitter("en"))
    >>> page.sentences, page.needs_alignment
    (['A dog runs.', 'It & I play.'], [True, False])
    """

    def __init__(self, text: str, splitter: SentenceSplitter):
        self._parts: list[str | _Sentence] = []
        self.warnings: list[str] = []
        run, depth_of_pre = [], 0
        for token in _tokens(text):
            if token.tag not in _BLOCKS:
                run.append(token)
                continue
            self._add_run(run, splitter, depth_of_pre > 0)
            self._parts.append(token.raw)
            run = []
            if token.tag == "pre":
                depth_of_pre += {"start": 1, "end": -1}.get(token.kind, 0)
        self._add_run(run, splitter, depth_of_pre > 0)
        sentences = [part for part in self._parts if isinstance(part, _Sentence)]
        self.sentences = [sentence.text for sentence in sentences]
        self.needs_alignment = [bool(sentence.elements) for sentence in sentences]

    def join(self, translations: Iterable[str], alignments: Iterable[Alignment | None]) -> str:
        """Replaces the sentences with their translations.

        Args:
            translations: one text for each of `sentences`.
            alignments: the alignment of each sentence with its translation; `None` where `needs_alignment` is false.

        Returns:
            The HTML.
        """
        found = zip(translations, alignments, strict=True)
        return "".join(part.translated(*next(found)) if isinstance(part, _Sentence) else part for part in self._parts)

    def _add_run(self, run, splitter, is_preformatted):
        parts, warnings = _Run(run).split(splitter, is_preformatted)
        self._parts += parts
        self.warnings += warnings


class _Token(NamedTuple):
    """A part of the HTML.

    Attributes:
        kind: `"text"`, `"start"`, `"end"`, or `"kept"` for what is not translated: void elements, comments, and
            elements with their content.
        raw: the part as it is.
        tag: name of the element.
    """

    kind: str
    raw: str
    tag: str = ""


class _Parser(HTMLParser):
    """Records kind, tag and offset of each part of the HTML. The raw parts are the texts between the offsets."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.found: list[tuple[int, str, str]] = []
        with contextlib.suppress(AssertionError):  # Of some invalid declarations. What follows them is one part then.
            self.feed(text)
            self.close()

    def _add(self, kind, tag=""):
        line, column = self.getpos()
        self.found.append((self._line_starts[line - 1] + column, kind, tag))

    def handle_starttag(self, tag, attrs):
        """See `HTMLParser`."""
        attributes = dict(attrs)
        is_marked = (attributes.get("translate") or "").lower() == "no" or "notranslate" in (
            attributes.get("class") or ""
        ).split()
        if tag in _VOID:
            self._add("kept", tag)
        else:
            self._add("kept start" if is_marked or tag in _UNTRANSLATED | _WITHOUT_TEXT else "start", tag)

    def handle_startendtag(self, tag, attrs):
        """See `HTMLParser`. In HTML, the slash means something in foreign elements only."""
        if tag in ("svg", "math"):
            self._add("kept")
        else:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        """See `HTMLParser`."""
        self._add("end", tag)

    def handle_data(self, data):
        """See `HTMLParser`."""
        self._add("text")

    def handle_comment(self, data):
        """See `HTMLParser`."""
        self._add("kept")

    def handle_decl(self, decl):
        """See `HTMLParser`."""
        self._add("kept")

    def handle_pi(self, data):
        """See `HTMLParser`."""
        self._add("kept")

    def unknown_decl(self, data):
        """See `HTMLParser`."""
        self._add("kept")


def _tokens(text: str) -> list[_Token]:
    """The parts of an HTML text. Elements that are not translated are single parts."""
    length = (
        text.rfind(">") + 1
    )  # After the last one there is no tag. The parser would look for its end again and again.
    found = _Parser(text[:length]).found
    if length < len(text):
        found.append((length, "text", ""))
    if found and found[0][0] > 0:
        found.insert(0, (0, "kept", ""))
    ends = [*(offset for offset, *_ in found[1:]), len(text)]
    tokens: list[_Token] = []
    kept, parts, opened = "", [], []  # The element that is not translated: its tag, its parts, and the tags open in it.
    for (begin, kind, tag), end in zip(found, ends, strict=False):
        raw = text[begin:end]
        if kept and _ends_before(kept, opened, kind, tag):
            tokens.append(_Token("kept", "".join(parts), kept))
            kept = ""
        if kept:
            parts.append(raw)
            if kind in ("start", "kept start"):
                opened.append(tag)
            elif kind == "end" and tag in opened:
                del opened[len(opened) - 1 - opened[::-1].index(tag) :]
            elif kind == "end" and tag == kept:
                tokens.append(_Token("kept", "".join(parts), kept))
                kept = ""
        elif kind == "kept start":
            kept, parts, opened = tag, [raw], []
        else:
            tokens.append(_Token(kind, raw, tag))
    if kept:
        tokens.append(_Token("kept", "".join(parts), kept))
    return _merge_notes(tokens)


def _ends_before(kept: str, opened: Sequence[str], kind: str, tag: str) -> bool:
    """Whether an element without an end tag ends before a part, as `<li>` before the next one and before `</ul>`."""
    if kept not in _UNCLOSED or set(opened) & _BLOCKS:
        return False
    return (kind in ("start", "kept start") and tag == kept) or (kind == "end" and tag in _BLOCKS - {kept})


def _merge_notes(tokens: Sequence[_Token]) -> list[_Token]:
    """Makes `<sup>` elements without letters, such as the numbers of footnotes, single parts without text."""
    result, begin = [], None
    for token in tokens:
        result.append(token)
        if token.tag == "sup" and token.kind == "start":
            begin = len(result) - 1
        elif token.tag == "sup" and token.kind == "end" and begin is not None:
            text = "".join(inside.raw for inside in result[begin:] if inside.kind == "text")
            if not any(map(str.isalpha, html.unescape(text))):
                result[begin:] = [_Token("kept", "".join(inside.raw for inside in result[begin:]))]
            begin = None
        elif token.tag in _BLOCKS:
            begin = None
    return result


@dataclasses.dataclass
class _Element:
    """An inline element in the text of a block, or its part in one sentence.

    Attributes:
        begin, end: the part of the text that it contains, without white space at both ends.
        before, after: its start tag and its end tag. Empty in a sentence in which it does not begin or end.
        kept: the whole element, if its content is not translated.
        children: the elements inside it.
        begins, ends: whether it begins and ends in the sentence.
        is_begun, is_ended: whether a sentence contains its start tag, its end tag.
    """

    begin: int
    end: int
    before: str = ""
    after: str = ""
    kept: str | None = None
    children: "list[_Element]" = dataclasses.field(default_factory=list)
    begins: bool = True
    ends: bool = True
    is_begun: bool = False
    is_ended: bool = False

    @property
    def order(self) -> int:
        """0 if it goes on from an earlier sentence, 2 if it goes on in a later one, 1 otherwise."""
        return 1 if self.begins and self.ends else 0 if self.ends else 2

    @property
    def has_text(self) -> bool:
        """Whether it contains words. The others, such as images, are put between words."""
        return self.end > self.begin


class _Run:
    """The text and the inline elements of a block.

    Args:
        tokens: the tokens of the block, without block tags.
    """

    def __init__(self, tokens: Sequence[_Token]):
        self._text = ""
        #: For each character whether it belongs to an element that is not translated.
        self._is_kept: list[bool] = []
        stack = [_Element(0, 0)]
        tags = [""]
        for token in tokens:
            if token.kind == "text":
                self._add_text(html.unescape(token.raw), is_kept=False)
            elif token.kind == "start" and len(stack) < _MAX_DEPTH:
                stack.append(_Element(len(self._text), 0, before=token.raw))
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
                if token.kind == "kept" and token.tag and token.tag not in _WITHOUT_TEXT | _VOID:
                    self._add_text(html.unescape(re.sub("<[^>]*>", "", token.raw)), is_kept=True)
                stack[-1].children.append(self._trimmed(_Element(begin, len(self._text), kept=token.raw)))
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
        stack[-1].children += [_Element(element.begin, element.begin, kept=element.before), *element.children]

    def _trimmed(self, element) -> _Element:
        """The element without white space at both ends. An element without text becomes one that is kept."""
        content = self._text[element.begin : element.end]
        if not content.strip() and element.kept is not None:
            return dataclasses.replace(element, end=element.begin)
        if not content.strip():
            inside = "".join(child.kept or "" for child in element.children)
            return _Element(element.begin, element.begin, kept=element.before + inside + element.after)
        element.begin += len(content) - len(content.lstrip())
        element.end -= len(content) - len(content.rstrip())
        for child in element.children:
            if not child.has_text:
                child.begin = child.end = min(max(child.begin, element.begin), element.end)
        return element

    def split(self, splitter: SentenceSplitter, is_preformatted: bool) -> "tuple[list[str | _Sentence], Sequence[str]]":
        """Splits the block into sentences and the HTML between them.

        Args:
            splitter: splits the text.
            is_preformatted: whether the end of a line is the end of a sentence.

        Returns:
            The parts, and warnings.
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
                sentences.append((begin, end, _Sentence(text[begin:end], begin, elements)))
            begin = end
        return [part for part in self._interleave(sentences) if part != ""], split.warnings

    def _is_translatable(self, begin, end):
        return any(self._text[i].isalnum() and not self._is_kept[i] for i in range(begin, end))

    def _within(self, begin, end, elements, is_part=False) -> Iterator[_Element]:
        """The parts of elements in a sentence. An element that contains the whole sentence is outside.

        Args:
            begin: begin of the sentence.
            end: end of the sentence.
            elements: the elements.
            is_part: whether they are inside an element that has a part in the sentence.
        """
        for element in elements:
            if not element.has_text:
                is_inside = begin < element.begin < end or (is_part and begin <= element.begin <= end)
                if is_inside and not element.is_begun:
                    element.is_begun = element.is_ended = True
                    yield element
            elif element.begin < end and element.end > begin:
                if element.begin <= begin and end <= element.end:
                    yield from self._within(begin, end, element.children)
                    continue
                begins, ends = element.begin >= begin, element.end <= end
                element.is_begun |= begins
                element.is_ended |= ends
                yield _Element(
                    max(element.begin, begin),
                    min(element.end, end),
                    element.before if begins else "",
                    element.after if ends else "",
                    element.kept if begins or element.kept is None else "",
                    [*self._within(begin, end, element.children, is_part=True)],
                    begins,
                    ends,
                )

    def _interleave(self, sentences) -> "Iterator[str | _Sentence]":
        """The sentences, and between them the text and the tags that are not inside a sentence."""
        tags, place = [*_tags(self._elements)], 0
        for begin, end, sentence in [*sentences, (len(self._text), len(self._text), "")]:
            while tags and tags[0][0] <= begin:
                tag_begin, tag_end, raw = tags.pop(0)
                yield _escape(self._text[place:tag_begin])
                yield raw
                place = max(place, tag_end)
            yield _escape(self._text[place:begin])
            yield sentence
            place = end


def _tags(elements) -> Iterator[tuple[int, int, str]]:
    """The tags outside of sentences: the part of the text that they replace, mostly an empty one, and the HTML."""
    for element in elements:
        if element.kept is not None:
            if not element.is_begun:
                yield element.begin, element.end, element.kept
            continue
        if not element.is_begun:
            yield element.begin, element.begin, element.before
        yield from _tags(element.children)
        if not element.is_ended:
            yield element.end, element.end, element.after


def _escape(text: str) -> str:
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


class _Sentence:
    """A sentence, and the inline elements in it.

    Args:
        text: the sentence.
        begin: its place in the text of the block.
        elements: the elements, with places in the text of the block.
    """

    def __init__(self, text: str, begin: int, elements: list[_Element]):
        self.text = text
        self.elements = elements
        self._begin = begin

    def translated(self, translation: str, alignment: Alignment | None) -> str:
        """Returns the HTML of the translation.

        Args:
            translation: the text.
            alignment: its alignment with the sentence; `None` if the sentence has no elements.
        """
        if alignment is None or not self.elements:
            return _escape(translation)
        return _Projection(self.text, self._begin, self.elements, translation, alignment).html()


class _Placed(NamedTuple):
    """An element and its units in the translation, `first` to `last`. Without units, `last` is `first` - 1."""

    first: int
    last: int
    element: _Element


class _Projection:
    """Puts the elements of a sentence around the words of its translation.

    Each element contains consecutive words, and exactly once. Elements inside it stay inside it.

    Args:
        sentence: the sentence.
        begin: its place in the text of the block.
        elements: the elements of the sentence.
        translation: the translation.
        alignment: the alignment of both.
    """

    def __init__(self, sentence: str, begin: int, elements: list[_Element], translation: str, alignment: Alignment):
        self._sentence, self._begin, self._elements, self._translation = sentence, begin, elements, translation
        places = {place - begin for element in elements for place in _places(element)}
        copies = {copy for element in _kept(elements) for copy in self._copies(element)}
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
                inside = self._html(element.children, placed.first, placed.last, left, right)
            else:
                left, right = self._target[placed.first][0], self._target[placed.last][1]
                # An element that goes on in another sentence extends to the end of this one.
                left, right = (left if element.begins else begin), (right if element.ends else end)
                inside = self._html(element.children, placed.first, placed.last, left, right)
            result += _escape(self._translation[begin:left])
            result += element.before + inside + element.after if element.kept is None else element.kept
            if not (element.has_text or any(self._touches(element))) and not self._translation[right:].startswith(" "):
                result += " "
            begin = right
        return result + _escape(self._translation[begin:end])

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
                i, j = (first, first - 1) if element.ends else (last + 1, last)
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
        ratings = inside - self._weights[:, ~is_inside].max(axis=1, initial=0.0) - _DOUBT
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
        while first < last and element.begins and self._is_sign[first] and self._sentence[begin].isalnum():
            first += 1
        while first < last and element.ends and self._is_sign[last] and self._sentence[end - 1].isalnum():
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
            if other.first + other.element.begins <= unit <= other.last + (not other.element.ends):
                goes_after = touches_left or not other.element.begins
                unit = other.last + 1 if goes_after and other.element.ends else other.first
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


def _kept(elements: Iterable[_Element]) -> Iterator[_Element]:
    """The elements with text that is not translated, also inside others."""
    for element in elements:
        if element.kept and element.has_text:
            yield element
        yield from _kept(element.children)


def _places(element: _Element) -> Iterator[int]:
    """Begin and end of an element and of those inside it."""
    yield from (element.begin, element.end)
    for child in element.children:
        yield from _places(child)


def _free(first: int, last: int, placed: Sequence[_Placed]) -> list[tuple[int, int]]:
    """The intervals of `first` to `last` without those that are taken."""
    free = []
    for taken in sorted(placed, key=lambda taken: taken.first):
        if taken.first > first:
            free.append((first, taken.first - 1))
        first = max(first, taken.last + 1)
    return [*free, (first, last)] if first <= last else free


def _best(ratings: np.ndarray, first: int, last: int, element: _Element) -> tuple[float, int, int]:
    """The interval of at least one unit with the largest sum of ratings.

    Args:
        ratings: one per unit.
        first: first unit that is free.
        last: last unit that is free.
        element: the element. If it begins in an earlier sentence, the interval begins with `first`; if it ends in a
            later one, it ends with `last`.

    Returns:
        The sum, the first unit and the last one.
    """
    sums = np.concatenate([[0.0], np.cumsum(ratings[first : last + 1])])
    # The sum of the units i to j is sums[j + 1] - sums[i].
    smallest = np.minimum.accumulate(sums[:-1]) if element.begins else np.zeros(len(sums) - 1)
    found = sums[1:] - smallest
    j = int(found.argmax()) if element.ends else len(found) - 1
    i = int(sums[: j + 1].argmin()) if element.begins else 0
    return float(found[j]), first + i, first + j
