"""Rules for one pair of sentences. Each is a function of source and target that returns whether the pair is kept."""

import collections
import functools
import re
import statistics
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from keras_transformer.training.cleaning.config import CleaningConfig
from keras_transformer.training.cleaning.identification import LanguageRule
from keras_transformer.training.cleaning.numbers import DIGIT, GROUPS, has_equal_numbers
from keras_transformer.training.data.filtering import exceeds_ratio

Rule = Callable[[str, str], bool]

#: Braces, comments, and tags: a name alone, or with attributes. <john@a.org>, <John Smith> and <<No>> are no tags.
_TAG = re.compile(
    r"<(?<!<<)(?:/?[A-Za-z][\w-]*(?::[A-Za-z]\w*)?(?:\s[^<>=]*=[^<>]*|\s*/?)>(?!>)|!--|!DOCTYPE|\?xml)|[{}]"
)
#: Addresses consist of ASCII characters, and end at others, such as quotation marks. The part of a mail address before
#: @ is bounded: otherwise, the search in a long line without spaces would take quadratic time.
_ADDRESS = re.compile(r"(?:https?://|www\.)[!#-;=?-~]+|[\w.+-]{1,64}@[\w-]+\.[\w.]+", re.IGNORECASE | re.ASCII)
_SCHEME = re.compile(r"(?:https?://)?(?:www\.)?")
#: Punctuation around addresses.
_AROUND = ".,;:!?'*_~|`()[]{}/+-"
#: Usual punctuation: any number of exclamation and question marks, or up to three marks that are no symbols.
_MARKS = ".,;:…\"'“”„‟‘’‚‛«»‹›()¿¡、。，．；：「」『』（）《》〈〉·・،؛؟।॥״׳"
_PUNCTUATION = re.compile(rf"[!?¡¿！？]+|(?<![{_MARKS}])[{_MARKS}]{{1,3}}(?![{_MARKS}])")
_NUMBER = re.compile(r"\d+(?:[.,:/'’-]\d+)*")
#: What separates the digits of two numbers, and the sign of a number.
_BETWEEN_DIGITS = re.compile(r"(\d)[\W_]+(?=\d)|[-−](?<!\w.)(?=\d)")
#: Pairs are kept if the actual and the expected length differ by at most this many characters of the longer side.
_SLACK = 20
#: Minimum fraction of the letters that must be of the expected script.
_MIN_SCRIPT = 0.7


def has_text(source: str, target: str) -> bool:
    """Whether both sides have more than white space."""
    return bool(source.strip() and target.strip())


def within_ratio(source: str, target: str, ratio: float, typical: float = 1.0) -> bool:
    """Whether the target has about as many characters as expected: `typical` for each character of the source.

    Differences of at most 20 characters are within any ratio.

    Example:

    >>> within_ratio("Hi!", "Guten Tag!", 2.0), within_ratio("Hi!", 20 * "Hallo ", 2.0)
    (True, False)
    """
    # The unit is a character of the language that needs more of them.
    shorter, longer = sorted((max(typical, 1) * len(source), max(1 / typical, 1) * len(target)))
    return not exceeds_ratio(shorter, longer, ratio, _SLACK)


def has_letters(source: str, target: str, fraction: float) -> bool:
    """Whether both sides consist of letters to a fraction of their characters, without spaces and usual punctuation.

    A number counts as one character.

    Example:

    >>> has_letters("Two men!!!", "Zwei, 1.000.000", 0.5), has_letters("+++ 12 +++", "Zwölf", 0.5)
    (True, False)
    """
    return all(
        _share(str.isalpha, text) >= fraction or _share(_is_letter, _without_marks(text)) >= fraction
        for text in (source, target)
    )


def _share(is_letter, text):
    characters = "".join(text.split())
    return sum(map(is_letter, characters)) / max(len(characters), 1)


def _without_marks(text):
    return _PUNCTUATION.sub("", _NUMBER.sub("0", text))


def _is_letter(character):
    """Whether a character is a letter, or a mark that belongs to one, such as a vowel sign of Devanagari."""
    return character.isalpha() or unicodedata.category(character) in ("Mn", "Mc")


def has_no_markup(source: str, target: str) -> bool:
    """Whether no side has HTML tags or braces.

    Example:

    >>> has_no_markup("a < b", "1 > 0"), has_no_markup("a <b>", "a")
    (True, False)
    """
    return not (_TAG.search(source) or _TAG.search(target))


def is_no_copy(source: str, target: str) -> bool:
    """Whether the sides differ in their letters or digits.

    Example:

    >>> is_no_copy("Hello, World", "hello world!"), is_no_copy("Hello", "Hallo")
    (False, True)
    """
    return near(source) != near(target)


def near(text: str) -> str:
    """The letters and numbers of a text in lower case, without punctuation. Ligatures become letters.

    What changes an amount is kept: the separators between numbers, minus signs, currency and percent signs.

    Example:

    >>> near("  The ﬁrst, 1st ..."), near("1,500 or 1.5 €") == near("1500 or 1,5€") != near("1500 or 15 €")
    ('thefirst1st', True)
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    if DIGIT.search(text):
        text = _BETWEEN_DIGITS.sub(r"\1¤", GROUPS.sub("", text))  # A currency sign, which the table keeps.
    return text.translate(_LETTERS_AND_DIGITS)


class _LettersAndDigits(dict):
    """Table for `str.translate` that removes all characters but letters, digits and signs. It fills itself."""

    def __missing__(self, code):
        character = chr(code)
        self[code] = code if character.isalnum() or _is_letter(character) or _is_sign(character) else None
        return self[code]


def _is_sign(character):
    return character in "%‰" or unicodedata.category(character) == "Sc"


_LETTERS_AND_DIGITS = _LettersAndDigits()


def has_equal_addresses(source: str, target: str) -> bool:
    """Whether each web or mail address of a side is in the other side, which may write it without http:// and www.

    Example:

    >>> has_equal_addresses("see www.a.org.", "siehe [a.org]"), has_equal_addresses("see www.a.org", "siehe dort")
    (True, False)
    """
    return all(
        address in other.lower() for text, other in ((source, target), (target, source)) for address in _addresses(text)
    )


def _addresses(text):
    if "@" not in text and "://" not in text and "www." not in text.lower():
        return []
    return [_SCHEME.sub("", found.lower(), count=1).strip(_AROUND) for found in _ADDRESS.findall(text)]


def script(text: str) -> str | None:
    """The script of most letters, by the first word of their Unicode names; `None` without letters.

    Example:

    >>> script("Straße"), script("Улица"), script("道 1"), script("12")
    ('LATIN', 'CYRILLIC', 'CJK', None)
    """
    scripts = collections.Counter(filter(None, map(_script_of, text)))
    return scripts.most_common(1)[0][0] if scripts else None


def is_in_script(text: str, expected: str) -> bool:
    """Whether most letters are of a script, as `script` returns it. The letters of addresses do not count.

    Chinese characters also count as Japanese and Korean ones.

    Example:

    >>> is_in_script("the word да", "LATIN"), is_in_script("слово word", "LATIN")
    (True, False)
    """
    wanted = _EAST_ASIAN if expected in _EAST_ASIAN else {expected}

    def is_mostly_wanted(text):
        scripts = [found for found in map(_script_of, text) if found]
        return sum(found in wanted for found in scripts) >= _MIN_SCRIPT * len(scripts)

    return is_mostly_wanted(text) or is_mostly_wanted(_ADDRESS.sub("", text))


_EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL"}


@functools.lru_cache(maxsize=1 << 16)
def _script_of(character):
    if not character.isalpha():
        return None
    character = unicodedata.normalize("NFKC", character)[0]  # Full-width and half-width letters have scripts, too.
    name = unicodedata.name(character, "UNKNOWN").split()[0]
    return {"KATAKANA-HIRAGANA": "KATAKANA", "IDEOGRAPHIC": "CJK"}.get(name, name)


def common_script(lines: Iterable[str]) -> str | None:
    """The script of most lines; `None` if no line has letters."""
    found = collections.Counter(filter(None, map(script, lines)))
    return found.most_common(1)[0][0] if found else None


class Typical(NamedTuple):
    """What most pairs of a corpus are like.

    Attributes:
        scripts: the script of the source and of the target; `None` if unknown.
        length_ratio: characters of the target for each character of the source.
    """

    scripts: tuple[str | None, str | None]
    length_ratio: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> "Typical":
        """Computes the scripts and the ratio, the median of the pairs with text on both sides, from a sample.

        Example:

        >>> Typical.of([("cold", "kalt"), ("a dog", "ein Hund"), ("warm", "warm!")])
        Typical(scripts=('LATIN', 'LATIN'), length_ratio=1.25)
        """
        ratios = [len(target) / len(source) for source, target in pairs if source.strip() and target.strip()]
        scripts = common_script(source for source, _ in pairs), common_script(target for _, target in pairs)
        return cls(scripts, statistics.median(ratios) if ratios else 1.0)


def rules(config: CleaningConfig, typical: Typical, languages=(None, None)) -> list[tuple[str, Rule]]:
    """The rules of a configuration, in their order, with the names that messages and counts use.

    Args:
        config: the options. A new filter has a field there, and a row here: name, whether it is on, and function.
        typical: what most pairs are like.
        languages: codes of the source language and of the target language; `None` if unknown.
    """
    scripts = typical.scripts
    every: list[tuple[str, object, Rule]] = [
        ("empty", True, has_text),
        ("length", config.max_characters, lambda s, t: max(len(s), len(t)) <= config.max_characters),
        (
            "length_ratio",
            config.max_length_ratio,
            lambda s, t: within_ratio(s, t, config.max_length_ratio, typical.length_ratio),
        ),
        ("letters", config.min_letters, lambda s, t: has_letters(s, t, config.min_letters)),
        ("markup", config.markup, has_no_markup),
        ("copy", config.copies, is_no_copy),
        ("numbers", config.numbers, has_equal_numbers),
        ("urls", config.urls, has_equal_addresses),
        ("script", config.scripts and scripts[0], lambda s, t: is_in_script(s, scripts[0])),
        ("script", config.scripts and scripts[1], lambda s, t: is_in_script(t, scripts[1])),
    ]
    if config.languages:
        every.append(("language", True, LanguageRule(*languages)))
    return [(name, rule) for name, is_on, rule in every if is_on]
