"""Whether two texts have the same numbers, each written as its language writes them."""

import collections
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator

#: Number of numbers that may be missing on one side, which may spell them in words.
_MAX_SPELLED = 2

#: Separators of other scripts in ASCII. East Asian dates become 2020-5/10, times 15:30, and fractions 1/2.
_SEPARATORS = {
    **dict.fromkeys("٫．", "."),
    **dict.fromkeys("٬،，", ","),
    **dict.fromkeys("：∶時时点點시", ":"),
    **dict.fromkeys("–‐‑−年년", "-"),
    **dict.fromkeys("／⁄月월", "/"),
    **dict.fromkeys("’ʼ＇", "'"),
    **{"½": " 1/2", "¼": " 1/4", "¾": " 3/4"},
}


class _Ascii(dict):
    """Table for `str.translate`: digits of all scripts become 0 to 9, and separators ASCII. It fills itself."""

    def __missing__(self, code):
        character = chr(code)
        digit = str(unicodedata.decimal(character)) if character.isdecimal() else character
        self[code] = _SEPARATORS.get(character, digit)
        return self[code]


_ASCII = _Ascii()
DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d+")
#: Decimal zeros and full hours, as in 7:00.
_ZEROS = re.compile(r"(?<=\d)[.,:h]00?(?!\d|[.,:]\d)")
#: Numbers, dates and times. A last dot or slash is that of a date, or the end of a sentence.
_NUMBER = re.compile(r"\d+(?:(?:[.,:'h]|[/-] ?)\d+)*[./]?")
#: Dates, of which the other side may write the month as a word: 10.5.2020, 2020-05-10, 5/2020, 10/5, 10.5., 5月.
_DATE = re.compile(
    r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}[./]?|\d{1,2}[./-]\d{4}\.?|\d{4}[/-]\d{1,2}[./]?"
    r"|\d{1,2}/(?:\d{1,2}[./]?)?|(?!0\.)\d{1,2}\.\d{1,2}\."
)
#: Separators before groups of three digits, or of two and at the end three, as in 1.200, 1'200 and 1,00,000.
GROUPS = re.compile(r"[.,'’](?<=\d.)(?<!\b0.)(?=(?:\d\d,){0,4}\d{3}(?!\d))")
_SPACED_GROUPS = re.compile(r"\s(?<=\d\s)(?<!\d{4}\s)(?=\d{3}(?!\d))")
#: Powers of ten, by the beginnings of their words.
_POWERS = {
    **dict.fromkeys(("thousand", "tausend", "тыс"), 3),
    **dict.fromkeys("万萬만", 4),
    **dict.fromkeys(("lakh", "लाख"), 5),
    **dict.fromkeys("million millone millón milio milyon miljo milh mio mln млн миллион мільйон".split(), 6),
    **dict.fromkeys("مليون میلیون מיליון ล้าน".split(), 6),
    **dict.fromkeys(("crore", "करो"), 7),
    **dict.fromkeys("亿億억", 8),
    **dict.fromkeys("billion milliard miliard milyar miljard bilh mrd млрд миллиард мільярд".split(), 9),
    **dict.fromkeys("مليار میلیارد מיליארד".split(), 9),
}
_POWER = re.compile(rf"(?<!\d)(\d{{1,15}})(?:[.,](\d{{1,15}}))?\s?({'|'.join(_POWERS)})")
#: Sums of them, as in 1億2000万 and 3万5000.
_AMOUNT = re.compile(rf"(?:{_POWER.pattern})+(\d{{1,4}}(?!\d))?")
_SPACE_IN_AMOUNT = re.compile(r"(?<=[만억])\s(?=\d)")
_FRACTION = re.compile(r"(?:(\d)\s)?(?<![\d/.,])(1/2|1/4|3/4)(?![\d/]|[.,]\d)")
#: Chinese numerals. Only those of one character are compared.
_NUMERALS = str.maketrans(
    {numeral: f" {value} " for value, numeral in enumerate("一二三四五六七八九十", 1)} | {"两": " 2 "}
)
_AM_PM = re.compile(r"\d\s?[ap]\.?\s?m\b")
#: Words for parts of the day. With them, 7 and 19 may be the same hour.
_PARTS_OF_DAY = (
    "morning afternoon evening night morgens mittags abends nachts matin midi soir mañana tarde noche утра дня вечера "
    "ночи 上午 下午 早上 晚上 午前 午後 夜 오전 오후 सुबह शाम रात صباح مساء"
).split()


def has_equal_numbers(source: str, target: str) -> bool:
    """Whether the numbers of both sides are the same, without regard to their order and notation.

    A text may be read in several ways: 12 300 is one number or two, and 2 million is 2 or 2,000,000. The pair is kept
    if the sides agree in one of the ways. They agree if they have the same groups of digits. One side may have up to
    two numbers more, which the other side may spell in words, and one side may have the months of dates.

    Example:

    >>> has_equal_numbers("2,000 cars in 1999", "1999: 2.000 Autos"), has_equal_numbers("12 cars", "21 Autos")
    (True, False)
    >>> has_equal_numbers("2 cars", "zwei Autos"), has_equal_numbers("on 10 May 2020", "am 10.05.2020")
    (True, True)
    """
    if not (DIGIT.search(source) or DIGIT.search(target)):
        return True
    texts = [text if text.isascii() else text.translate(_ASCII) for text in (source, target)]
    if sorted(_DIGITS.findall(texts[0])) == sorted(_DIGITS.findall(texts[1])):
        return True
    texts, previous = [_ZEROS.sub("", text.lower()) for text in texts], None
    is_half_day = any(_has_part_of_day(text) for text in texts)
    for read in _READINGS:
        texts = [read(text) for text in texts]
        if texts != previous and _agree(*(_NUMBER.findall(text) for text in texts), is_half_day):
            return True
        previous = texts
    return False


def _has_part_of_day(text: str) -> bool:
    return bool(_AM_PM.search(text)) or any(word in text for word in _PARTS_OF_DAY)


def _in_full(text: str) -> str:
    """Powers of ten in digits: 1.5 million becomes 1500000, and 3万5000 becomes 35000."""

    def value(whole, fraction, word):
        return int(whole + fraction) * 10 ** _POWERS[word] // 10 ** len(fraction)

    def digits(amount):
        return str(sum(itertools.starmap(value, _POWER.findall(amount[0]))) + int(amount[4] or 0))

    return _AMOUNT.sub(digits, _SPACE_IN_AMOUNT.sub("", text))


def _as_decimals(text: str) -> str:
    """Fractions as decimals: 2 1/2 becomes 2.5."""
    decimals = {"1/2": "5", "1/4": "25", "3/4": "75"}
    return _FRACTION.sub(lambda match: f"{match[1] or 0}.{decimals[match[2]]}", text)


#: Ways to read a text. Each changes the result of the one before.
_READINGS: list[Callable[[str], str]] = [
    str,
    lambda text: GROUPS.sub("", text),
    lambda text: _SPACED_GROUPS.sub("", text),
    _in_full,
    _as_decimals,
    lambda text: text.translate(_NUMERALS),
]


def _agree(ours: list[str], theirs: list[str], is_half_day: bool) -> bool:
    missing, missing_months = _missing(ours, theirs, is_half_day)
    added, added_months = _missing(theirs, ours, is_half_day)
    return not (missing and added or missing_months and added_months) and max(missing, added) <= _MAX_SPELLED


def _missing(numbers: list[str], others: list[str], is_half_day: bool) -> tuple[float, int]:
    """How many numbers and months of one side the other side lacks.

    A number counts if all its parts are missing. If the other side has only some of them, the count is infinite, except
    for dates without their month.
    """
    wanted, given = (
        collections.Counter(part for number in side for part in _parts(number)) for side in (numbers, others)
    )
    equal, left = wanted & given, given - wanted
    missing, months = 0.0, 0
    for number in sorted(numbers, key=_is_date):  # Dates last, because they may lack a part.
        parts, is_date = _parts(number), _is_date(number)
        absent = []
        for i, part in enumerate(parts):
            is_fraction = len(parts) == 2 and i == 1
            if not (_take(equal, [part]) or _take(left, _variants(part, is_date, is_fraction, is_half_day))):
                absent.append(part)
        if is_date and len(absent) == 1 and int(absent[0]) <= 12:
            months += 1
        elif absent:
            missing += 1 if len(absent) == len(parts) else math.inf
    return missing, months


def _take(counts: collections.Counter, parts: Iterable[str]) -> bool:
    """Takes the first of the parts that the counts have. Returns whether they have one."""
    found = next((part for part in parts if counts[part] > 0), None)
    if found is not None:
        counts[found] -= 1
    return found is not None


def _is_date(number: str) -> bool:
    return bool(_DATE.fullmatch(number.replace(" ", "")))


def _parts(number: str) -> list[str]:
    """The groups of digits of a number without leading zeros, except after a decimal point, as in 0.05."""
    first, *rest = _DIGITS.findall(number)
    return [first.lstrip("0") or "0", *(rest if len(rest) == 1 else [part.lstrip("0") or part for part in rest])]


def _variants(part: str, is_date: bool, is_fraction: bool, is_half_day: bool) -> Iterator[str]:
    """Other ways to write a group of digits."""
    if is_date:
        yield part.lstrip("0")
        yield part.zfill(2)
    if is_fraction:
        yield part.rstrip("0")
        yield f"{part}0"
    if len(part) == 4 and part.startswith(("19", "20")):
        yield part[2:].lstrip("0")
    if len(part) == 2 or (is_date and len(part) == 1):
        yield f"19{part:0>2}"
        yield f"20{part:0>2}"
    if is_half_day and len(part) <= 2:
        yield str(int(part) + 12)
        yield str(int(part) - 12)
