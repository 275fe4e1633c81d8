"""The parts of an HTML text: tags, text, and what is not translated."""

import contextlib
import html
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import NamedTuple

#: Elements that begin a new block of text.
BLOCKS = frozenset(
    "address article aside blockquote body br button caption center col colgroup datalist dd details dialog dir div dl "
    "dt fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link "
    "main menu meta nav noframes noscript ol optgroup option p pre search section select summary table tbody td "
    "template tfoot th thead title tr ul".split()
)
#: Elements without content.
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
#: Elements whose end tag is often omitted.
_UNCLOSED = frozenset("dd dt li option p td th tr".split())
#: Elements whose content is not translated, although it is part of the sentence.
_UNTRANSLATED = frozenset("code kbd math samp var".split())
#: Elements whose content is not text.
WITHOUT_TEXT = frozenset("applet audio canvas iframe noembed object script style svg textarea video xmp".split())


class Token(NamedTuple):
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


def read_tokens(text: str) -> list[Token]:
    """The parts of an HTML text, in order. An element that is not translated is a single token."""
    # No tag follows the last ">". The parser would search for one again and again.
    length = text.rfind(">") + 1
    found = _Parser(text[:length]).found
    if length < len(text):
        found.append((length, "text", ""))
    if found and found[0][0] > 0:
        found.insert(0, (0, "kept", ""))
    ends = [*(offset for offset, *_ in found[1:]), len(text)]
    tokens: list[Token] = []
    kept, parts, opened = "", [], []  # The element that is not translated: its tag, its parts, and the tags open in it.
    for (begin, kind, tag), end in zip(found, ends, strict=False):
        raw = text[begin:end]
        if kept and _ends_before(kept, opened, kind, tag):
            tokens.append(Token("kept", "".join(parts), kept))
            kept = ""
        if kept:
            parts.append(raw)
            if kind in ("start", "kept start"):
                opened.append(tag)
            elif kind == "end" and tag in opened:
                del opened[len(opened) - 1 - opened[::-1].index(tag) :]
            elif kind == "end" and tag == kept:
                tokens.append(Token("kept", "".join(parts), kept))
                kept = ""
        elif kind == "kept start":
            kept, parts, opened = tag, [raw], []
        else:
            tokens.append(Token(kind, raw, tag))
    if kept:
        tokens.append(Token("kept", "".join(parts), kept))
    return _merge_notes(tokens)


def _ends_before(kept: str, opened: Sequence[str], kind: str, tag: str) -> bool:
    """Whether an element without an end tag ends before a part, as `<li>` before the next one and before `</ul>`."""
    if kept not in _UNCLOSED or set(opened) & BLOCKS:
        return False
    return (kind in ("start", "kept start") and tag == kept) or (kind == "end" and tag in BLOCKS - {kept})


def _merge_notes(tokens: Sequence[Token]) -> list[Token]:
    """Makes `<sup>` elements without letters, such as the numbers of footnotes, single parts without text."""
    result, begin = [], None
    for token in tokens:
        result.append(token)
        if token.tag == "sup" and token.kind == "start":
            begin = len(result) - 1
        elif token.tag == "sup" and token.kind == "end" and begin is not None:
            text = "".join(inside.raw for inside in result[begin:] if inside.kind == "text")
            if not any(map(str.isalpha, html.unescape(text))):
                result[begin:] = [Token("kept", "".join(inside.raw for inside in result[begin:]))]
            begin = None
        elif token.tag in BLOCKS:
            begin = None
    return result


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
        if tag in VOID:
            self._add("kept", tag)
        else:
            self._add("kept start" if is_marked or tag in _UNTRANSLATED | WITHOUT_TEXT else "start", tag)

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
        """See `HTMLParser`. Declarations and processing instructions are kept, too."""
        self._add("kept")

    handle_decl = handle_pi = unknown_decl = handle_comment


def escape(text: str) -> str:
    """Writes text as HTML."""
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")
