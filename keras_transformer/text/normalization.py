"""The default normalization of text, as a rule that SentencePiece compiles into the file of a tokenizer.

SentencePiece replaces the longest match at each place, so the rule is a table of strings and their replacements.
"""

import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable

#: Line breaks and other white space, which become spaces. U+1680 is a visible sign of Ogham.
_SPACES = "\t\n\v\f\r\x85\xa0\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
#: Format characters that are visible or needed: signs that enclose Arabic, Syriac and Kaithi numbers, joiners, the
#: vowel separator of Mongolian, and the layout of Egyptian hieroglyphs.
_KEPT_FORMATS = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u180e\u200c\u200d\U000110bd\U000110cd\U00013430-\U0001345f]"
)
#: Invisible characters of other categories: the grapheme joiner, two Khmer vowels, a reserved character, and variation
#: selectors without those of Mongolian and the one that emoji need, U+FE0F.
_INVISIBLE = "\u034f\u17b4\u17b5\u2065" + "".join(map(chr, (*range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0))))
_JOINERS = "\u200c\u200d"
#: Scripts that do not need joiners within words.
_WITHOUT_JOINERS = ("LATIN ", "GREEK ", "CYRILLIC ")
#: Letters and digits in other widths, fonts and positions in a word: ligatures, presentation forms of Armenian, Hebrew
#: and Arabic, full-width and half-width forms, and mathematical letters.
_SHAPES = re.compile(
    "[\ufb00-\ufb06\ufb13-\ufb17\ufb20-\ufb28\ufb4f-\ufbb1\ufbd3-\ufd3d\ufd50-\ufdc7\ufe70-\ufefc"
    "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uff9f\uffa1-\uffdc\U0001d400-\U0001d7ff]"
)
#: ASCII in full width: letters and digits, and punctuation.
_WIDE = "".join(map(chr, range(0xFF01, 0xFF5F)))
_WIDE_LETTERS, _WIDE_SIGNS = ([c for c in _WIDE if c.isalnum() is is_letter] for is_letter in (True, False))
#: Punctuation in full width that Chinese does not use.
_LATIN_SIGNS = "．＂＇"
_USABLE = re.compile(f"{_SHAPES.pattern}|[{re.escape(''.join(_WIDE_SIGNS))}]")
#: A shape is part of the language of a text if it is at least this fraction of the characters.
_USED = 1e-5


def used_shapes(lines: Iterable[str]) -> set[str]:
    """The letters, digits and punctuation in other widths, fonts and positions that a text uses regularly.

    They are at least one in 100,000 of its characters.

    Example:

    >>> sorted(used_shapes(["２０２４年", "a"]))
    ['０', '２', '４']
    """
    counts, length = collections.Counter(), 0
    for line in lines:
        length += len(line)
        if not line.isascii():
            counts.update(_USABLE.findall(line))
    return {character for character, count in counts.items() if count >= _USED * length}


def normalization_rule(kept: Iterable[str] = ()) -> str:
    """The default normalization rule in SentencePiece's TSV format.

    Characters are composed (Unicode's form NFC). White space becomes spaces. Control characters and invisible format
    characters are removed, except those that scripts and emoji need. Letters and digits in other widths, fonts and
    positions become plain ones, with punctuation in full width beside them, except `kept`. Other characters that are
    compatible with simpler ones, such as `²`, `½`, `…` and `，`, do not change.

    Args:
        kept: letters, digits and punctuation in other widths, fonts and positions that do not change; see
            `used_shapes`.
    """
    shapes = {string: text for string, text in _shapes().items() if not set(string) & set(kept)}
    table = {**_composition(), **shapes, **_removal()}
    return "".join(f"{_codes(string)}\t{_codes(replacement)}\n" for string, replacement in sorted(table.items()))


def _codes(text):
    return " ".join(f"{ord(character):X}" for character in text)


@functools.cache
def _composition() -> dict[str, str]:
    """The spellings of composed characters, and the characters that are equal to others."""
    table = {}
    for character in _characters():
        decomposed, composed = (unicodedata.normalize(form, character) for form in ("NFD", "NFC"))
        if composed != character:
            table[character] = composed
        elif decomposed != character:
            table.update(dict.fromkeys(_spellings(decomposed, composed), composed))
    return table


def _spellings(decomposed, composed):
    """All strings of a composed character: its marks in each order, the first ones composed with the letter or not."""
    letter, *marks = decomposed
    for order in itertools.permutations(marks):
        for count in range(len(order)):
            string = unicodedata.normalize("NFC", "".join([letter, *order[:count]])) + "".join(order[count:])
            if unicodedata.normalize("NFC", string) == composed:
                yield string


@functools.cache
def _shapes() -> dict[str, str]:
    """Letters and digits in other widths, fonts and positions, and the plain ones."""
    shapes = [character for character in _characters() if _SHAPES.match(character)]
    plain = {shape: unicodedata.normalize("NFKC", shape) for shape in shapes}
    table = {shape: letter for shape, letter in plain.items() if letter != shape and letter[0].isalnum()}
    voiced = {kana + mark: unicodedata.normalize("NFKC", kana + mark) for kana in shapes for mark in "ﾞﾟ"}
    table.update((string, letter) for string, letter in voiced.items() if len(letter) == 1)
    pairs = ((letter + sign, sign + letter) for letter, sign in itertools.product(_WIDE_LETTERS, _WIDE_SIGNS))
    for string in itertools.chain(_LATIN_SIGNS, *pairs):
        table[string] = unicodedata.normalize("NFKC", string)
    return table


@functools.cache
def _removal() -> dict[str, str]:
    """White space and invisible characters."""
    table = {}
    for character in (*_characters(), *_INVISIBLE):
        is_format = unicodedata.category(character) in ("Cc", "Cf") and not _KEPT_FORMATS.match(character)
        if (is_format or character in _INVISIBLE) and character != "\0":  # SentencePiece's table cannot contain NUL.
            table[character] = ""
    table.update(dict.fromkeys(_SPACES, " "))
    for character in _characters():
        if character.isalpha() and unicodedata.name(character, "").startswith(_WITHOUT_JOINERS):
            table.update((character + joiner, character) for joiner in _JOINERS)
    return table


@functools.cache
def _characters() -> list[str]:
    """The characters of Unicode that may be composed, invisible or shapes of others: not most ideographs."""
    ranges = ((0x0, 0x3400), (0xA000, 0xD800), (0xE000, 0x20000), (0x2F800, 0x2FA20), (0xE0000, 0xE1000))
    codes = itertools.chain.from_iterable(itertools.starmap(range, ranges))
    return [character for character in map(chr, codes) if unicodedata.category(character) != "Cn"]
