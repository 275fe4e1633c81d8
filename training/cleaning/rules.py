"""Rules for one pair of sentences. Each is a function of source and target that returns whether the pair is kept."""

import collections
import functools
import re
import statistics
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

Rule = Callable[[str, str], bool]

_TAG = re.compile(r"</?[A-Za-z][^<>]*>|[{}]")
#: Digits with separators between them.
_NUMBER = re.compile(r"\d+(?:[.,:'’]\d+)*")
#: The same, with spaces between groups of three digits, as in 12 000.
_SPACED_NUMBER = re.compile(rf"\d{{1,3}}(?:\s\d{{3}})+(?!\d)(?:[.,]\d+)?|{_NUMBER.pattern}")
#: Web addresses end at the first character that is not ASCII, such as a quotation mark. The part of a mail address
#: before @ is bounded: otherwise, the search in a long line without spaces would take quadratic time.
_ADDRESS = re.compile(r"(?:https?://|www\.)[!#-;=?-~]+|[\w.+-]{1,64}@[\w-]+\.[\w.]+", re.IGNORECASE)
#: Pairs are kept if the actual and the expected length differ by at most this many characters of the longer side.
_SLACK = 20
#: Number of numbers that may be missing on one side, which may spell them in words.
_MAX_SPELLED = 2
#: Minimum fraction of the letters that must be of the expected script.
_MIN_SCRIPT = 0.7


def within_ratio(source: str, target: str, ratio: float, typical: float = 1.0) -> bool:
    """Whether the target has about as many characters as can be expected from the source.

    Differences of at most 20 characters are within any ratio.

    Args:
        source: source text.
        target: target text.
        ratio: maximum ratio of the expected and the actual number.
        typical: expected number of characters of the target for each character of the source.

    Example:

    >>> within_ratio("Hi!", "Guten Tag!", 2.0), within_ratio("Hi!", 20 * "Hallo ", 2.0)
    (True, False)
    """
    # The unit is a character of the language that needs more of them.
    shorter, longer = sorted((max(typical, 1) * len(source), max(1 / typical, 1) * len(target)))
    return longer <= ratio * shorter or longer - shorter <= _SLACK


def has_letters(source: str, target: str, fraction: float) -> bool:
    """Whether both sides consist of letters to a fraction of their characters, without spaces.

    Example:

    >>> has_letters("Two men.", "Zwei Männer.", 0.5), has_letters("+++ 12 +++", "Zwölf", 0.5)
    (True, False)
    """

    def share(text):
        characters = "".join(text.split())
        return sum(map(_is_letter, characters)) / max(len(characters), 1)

    return min(share(source), share(target)) >= fraction


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
    """The letters and digits of a text in lower case, without spaces and punctuation. Ligatures become letters.

    Example:

    >>> near("  The ﬁrst, 1st ...")
    'thefirst1st'
    """
    return unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS_AND_DIGITS)


class _LettersAndDigits(dict):
    """Table for `str.translate` that removes all characters but letters and digits. It fills itself."""

    def __missing__(self, code):
        character = chr(code)
        self[code] = code if character.isalnum() or _is_letter(character) else None
        return self[code]


_LETTERS_AND_DIGITS = _LettersAndDigits()


def has_equal_numbers(source: str, target: str) -> bool:
    """Whether the numbers of both sides are the same, without regard to their order and separators.

    Digits after a space may belong to the same number or not. The pair is kept if the sides agree either way.

    Example:

    >>> has_equal_numbers("2,000 cars in 1999", "1999: 2.000 Autos"), has_equal_numbers("12 cars", "21 Autos")
    (True, False)
    >>> has_equal_numbers("2 cars", "zwei Autos")
    True
    """

    def agree(form):
        ours, theirs = (_numbers(text, form) for text in (source, target))
        missing, added = ours - theirs, theirs - ours
        return not (missing and added) and max(missing.total(), added.total()) <= _MAX_SPELLED

    return agree(_NUMBER) or agree(_SPACED_NUMBER)


def _numbers(text, form):
    """The numbers of a text in the digits 0 to 9, without separators."""
    digits = (filter(str.isdecimal, found) for found in form.findall(text))
    return collections.Counter("".join(str(unicodedata.decimal(digit)) for digit in number) for number in digits)


def has_equal_addresses(source: str, target: str) -> bool:
    """Whether the web and mail addresses of both sides are the same.

    Example:

    >>> has_equal_addresses("see www.a.org.", "siehe www.a.org"), has_equal_addresses("see www.a.org", "siehe dort")
    (True, False)
    """
    ours, theirs = (
        {found.rstrip(".,;:!?)'/").lower() for found in _ADDRESS.findall(text)} for text in (source, target)
    )
    return ours == theirs


def script(text: str) -> str | None:
    """The script of most letters, by the first word of their Unicode names; `None` without letters.

    Example:

    >>> script("Straße"), script("Улица"), script("道 1"), script("12")
    ('LATIN', 'CYRILLIC', 'CJK', None)
    """
    scripts = collections.Counter(filter(None, map(_script_of, text)))
    return scripts.most_common(1)[0][0] if scripts else None


def is_in_script(text: str, expected: str) -> bool:
    """Whether most letters are of a script. Chinese characters also count as Japanese and Korean ones.

    Args:
        text: the text.
        expected: the script, as `script` returns it.

    Example:

    >>> is_in_script("the word да", "LATIN"), is_in_script("слово word", "LATIN")
    (True, False)
    """
    scripts = [found for found in map(_script_of, text) if found]
    wanted = {expected, "CJK", "HIRAGANA", "KATAKANA", "HANGUL"} if expected in _EAST_ASIAN else {expected}
    return sum(found in wanted for found in scripts) >= _MIN_SCRIPT * len(scripts)


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
        """Computes the scripts and the ratio from a sample.

        Args:
            pairs: the sample.

        Returns:
            A `Typical`. Its ratio is the median over the pairs, 1 if no pair has text on both sides.

        Example:

        >>> Typical.of([("cold", "kalt"), ("a dog", "ein Hund"), ("warm", "warm!")])
        Typical(scripts=('LATIN', 'LATIN'), length_ratio=1.25)
        """
        ratios = [len(target) / len(source) for source, target in pairs if source.strip() and target.strip()]
        scripts = common_script(source for source, _ in pairs), common_script(target for _, target in pairs)
        return cls(scripts, statistics.median(ratios) if ratios else 1.0)


def rules(config, typical: Typical) -> list[tuple[str, Rule]]:
    """The rules of a configuration, with their names.

    Args:
        config: a `CleaningConfig`.
        typical: what most pairs are like.
    """
    scripts = typical.scripts
    every = [
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
    return [(name, rule) for name, is_on, rule in every if is_on]
