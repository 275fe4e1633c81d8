"""Lines of text on their way into a model: checked, made ids, and cut where it takes no more."""

import sys
import warnings
from collections.abc import Iterable, Sequence

from keras_transformer.text.tokenization import Tokenizer

#: Subwords of a line at most, the end not counted.
MAX_LENGTH = 512


def max_tokens(num_positions: int | None) -> int:
    """Subwords of a line that a model is given, the end not counted.

    Args:
        num_positions: the model's learned positions, or `None` where any length will do.

    Returns:
        `MAX_LENGTH`, or what the positions leave room for.
    """
    return MAX_LENGTH if num_positions is None else min(MAX_LENGTH, num_positions - 1)


def check_no_string(name: str, lines: Iterable[str]) -> None:
    """Refuses one string, whose characters would be taken for lines.

    Args:
        name: of the argument, for the message.
        lines: what was given.

    Raises:
        ValueError: if it is a string or bytes.
    """
    if isinstance(lines, (str, bytes)):
        raise ValueError(f"`{name}` must be a list of strings. Received: {lines[:80]!r}")


def checked_lines(name: str, lines: Iterable[str]) -> list[str]:
    """Lines of well-formed text.

    Args:
        name: of the argument, for the message.
        lines: text; an iterable of strings, not one string.

    Returns:
        The lines, with a question mark for each lone surrogate: SentencePiece takes valid UTF-8 only.

    Raises:
        ValueError: if `lines` is a string or holds anything but strings.
    """
    check_no_string(name, lines)
    lines = list(lines)
    wrong = [line for line in lines if not isinstance(line, str)]
    if wrong:
        raise ValueError(f"`{name}` must hold strings. Received: {wrong[0]!r}")
    return [line.encode("utf-8", errors="replace").decode("utf-8") for line in lines]


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str], longest: int, first_line: int = 1) -> list[list[int]]:
    """The ids of each line, cut to the limit.

    Args:
        tokenizer: of these lines.
        lines: well-formed text.
        longest: subwords at most, the end not counted.
        first_line: number of the first line, for warnings.

    Returns:
        One list of ids a line, with the end.

    Warns:
        UserWarning: for each line that is cut.
    """
    sentences = tokenizer.encode(lines)
    warn_of_long(lines, [len(ids) - 1 for ids in sentences], longest, first_line)
    return [ids[:-1][:longest] + ids[-1:] for ids in sentences]


def warn_of_long(lines: Sequence[str], lengths: Sequence[int], longest: int, first_line: int = 1) -> None:
    """Warns about lines that are truncated. The warning points to the first caller outside this package.

    Args:
        lines: text.
        lengths: subwords of each line, the end token not counted.
        longest: maximum subwords.
        first_line: number of the first line.

    Warns:
        UserWarning: for each longer line.
    """
    for number, (line, length) in enumerate(zip(lines, lengths, strict=True), first_line):
        if length > longest:
            warnings.warn(
                f"line {number} has {length} subwords and is cut to its first {longest}: {line[:60]}…",
                stacklevel=_level_outside_package(),
            )


def _level_outside_package():
    """The `stacklevel` with which a warning of the calling function points outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    return level
