r"""What is no language and is therefore not translated: lines without letters, URLs, placeholders, tags, list markers.

The patterns are written so that they can be converted to JavaScript: see `keras_transformer.export.web.patterns`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from keras_transformer.text.languages import parse_language

#: A URL with a scheme or `www.`, without the punctuation after it. Parentheses belong to it in pairs.
_URL = (
    r"(?:(?<!\w)[A-Za-z][A-Za-z0-9+.-]*://|(?<![\w.@-])www\.)"
    r"(?:[^\s<>\x22()，。；：！？、」』）】]|\([^\s<>\x22()]*\))*"
    r"(?:\([^\s<>\x22()]*\)|[^\s<>\x22().,;:!?'’”…\[\]{}*，。；：！？、」』）】])"
)
_MAIL = r"(?<![A-Za-z0-9._%+-])(?:mailto:)?[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}"
#: Parts of a sentence that are no language. The first that matches at a place counts.
_PARTS = (
    _URL,
    _MAIL,
    # Tags, comments, time stamps and references in angle brackets.
    r"<(?:/?[A-Za-z][^<>]*|!--[^<>]*--|[@#:]!?[^<>\s]+|\d\d:[\d:.]+)>",
    r"&(?:[A-Za-z]+\d*|#\d+|#[xX][0-9A-Fa-f]+);",
    # Placeholders: {name}, {{name}}, {0, number}, ${name}, %{name}, {\an8}.
    r"[$#%]?\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}",
    # %(name)s, %1$s, %s, %5.2f, %1, %NAME%.
    r"%(?:\([^()\s]*\)|\d+\$)[+#0]?(?:-?\d+)?(?:\.\d+)?l{0,2}[A-Za-z@]",
    r"(?<![\w%])%(?:[A-Za-z_]\w*%|L?\d{1,2}(?![\d.\w])|[+#0]?(?:-?\d+)?(?:\.\d+)?l{0,2}[diouxXeEfFgGcspn@](?![a-z]{3}))",
    # $1 and $name, but not $10 or $1.50.
    r"(?<![\w$])\$(?:\d(?!\w|[.,]\d)|[A-Za-z_]\w*)",
    # @name, @name@host, @scope/name.
    r"(?<![\w@.])@\w+(?:-\w+)*(?:@[\w-]+(?:\.[\w-]+)+|/[\w-]+)?",
    r"(?<![\w&#])#\d*[^\W\d_]\w*",
    r"(?<![\w:]):(?:[A-Za-z]\w*(?:[-+]\w+)*|[-+]1):(?![\w:])",
)
PARTS = "|".join(_PARTS)
#: Characters of which each part contains at least one. Most lines contain none of them.
SIGNS = r"[@#$%&<{:]|www\."
#: Bullets, with or without white space after them.
_BULLETS = "•‣◦▪▫●○■□▶►▸➢➤➔✓✔✗✘→⇒⁃∙①-⑳"
#: Markers that need white space after them.
_MARKERS = (
    r"[*+·–—]|-{1,2}|>+|#{1,6}",
    r"\[[ xX\d]\d{0,2}\]",
    r"\(?\d{1,3}\)|\(?[A-Za-z]\)|\(?(?:x{1,3}(?:ix|iv|v?i{0,3})|ix|iv|vi{0,3}|i{1,3})\)",
    r"(?:x{1,3}(?:ix|iv|v?i{1,3})|x{2,3}|ix|iv|vi{1,3}|i{2,3})\.",
    r"[1-9]\d?(?:\.[1-9]\d?){2,4}\.?",
)
#: Markers that are ordinal numbers in some languages.
_NUMBERS = (r"\d{1,3}\.", r"[1-9]\d?\.[1-9]\d?\.", r"(?:X{1,3}(?:IX|IV|V?I{1,3})|X{2,3}|IX|IV|VI{1,3}|I{2,3})\.")
_START = r"\s*(?:(?:[" + _BULLETS + r"]|\d{{1,3}}、)\s*|(?:{})\s+)*"
#: Languages that write ordinal numbers with a dot, such as `2. Weltkrieg`.
ORDINALS = frozenset(
    "bar bs cnr cs da de dsb et eu fi fo gsw hr hsb hu is kl ksh lb lv nb nds nn no pl se sh sk sl sr tr".split()
)
#: The markers at the start of a line, for languages with such ordinal numbers and for the others.
MARKERS_WITHOUT_NUMBERS = _START.format("|".join(_MARKERS))
MARKERS = _START.format("|".join((*_MARKERS, *_NUMBERS)))
#: The bars between the cells of a table, and tags that may end a sentence.
BARS = r"\s*(?:(?:(?<!\S)\|+(?!\S)|</?(?:br|hr|p|div|li|t[dhr]|h\d)(?:\s[^<>]*)?/?>)\s*)+"
#: The end of a text after which such a tag ends a sentence.
SENTENCE_END = r"(?:^|[.!?…:;。！？][\x22'”’»)\]]*)\s*(?:<[^<>]*>\s*)*$"

_find_parts = re.compile(PARTS)
_has_sign = re.compile(SIGNS).search
_markers = {True: re.compile(MARKERS_WITHOUT_NUMBERS), False: re.compile(MARKERS)}
_bars = re.compile(BARS)
#: Characters before a tag in which the end of a sentence is searched for.
_LOOK_BACK = 200
_ends_sentence = re.compile(SENTENCE_END).search


class TextPart(NamedTuple):
    """A part of a text.

    Attributes:
        text: the part.
        is_sentence: whether it is a sentence to translate. Other parts, such as white space, are kept.
    """

    text: str
    is_sentence: bool


def kept_parts(line: str) -> list[tuple[int, int]]:
    """The parts of a line that are no language: URLs, mail addresses, placeholders, tags, names, codes.

    Example:

    >>> kept_parts("See https://keras.io, {name}.")
    [(4, 20), (22, 28)]
    """
    return [match.span() for match in _find_parts.finditer(line)] if _has_sign(line) else []


def is_translatable(line: str) -> bool:
    """Whether a line has letters outside its `kept_parts`.

    Example:

    >>> [is_translatable(line) for line in ("Two men", "12:30", "...", "https://keras.io", "{name}")]
    [True, False, False, False, False]
    """
    if not any(map(str.isalpha, line)):
        return False
    return not _has_sign(line) or any(map(str.isalpha, _find_parts.sub("", line)))


def writes_ordinals(language: str) -> bool:
    """Whether a language writes ordinal numbers with a dot, as in `2. Weltkrieg`."""
    return parse_language(language).base in ORDINALS


def split_markers(line: str, language: str | None = None) -> Iterator[TextPart]:
    """Splits a line at list markers, the bars of a table and tags such as `<br />` after a sentence, which are kept.

    A number with a dot is a marker unless the language writes ordinal numbers that way, as in `2. Weltkrieg`, or is
    unknown. The parts make up the line.

    Example:

    >>> [piece.text for piece in split_markers("1. Two men", "en") if piece.is_sentence]
    ['Two men']
    """
    is_ordinal = language is None or writes_ordinals(language)
    begin = 0
    for bars in _bars.finditer(line) if "|" in line or "<" in line else ():
        if "|" not in bars[0] and not _ends_sentence(line[max(begin, bars.start() - _LOOK_BACK) : bars.start()]):
            continue  # A tag inside a sentence.
        yield from _split_marker(line[begin : bars.start()], is_ordinal)
        yield TextPart(bars[0], False)
        begin = bars.end()
    yield from _split_marker(line[begin:], is_ordinal)


def _split_marker(cell, is_ordinal):
    marker = _markers[is_ordinal].match(cell)
    end = marker.end() if marker else 0
    if end:
        yield TextPart(cell[:end], False)
    if end < len(cell):
        yield TextPart(cell[end:], True)
