"""Preparation of lines of text for a model: checks, encoding to ids and truncation."""

import sys
import warnings
from collections.abc import Iterable, Sequence

from keras_transformer.text.tokenization import Tokenizer

#: Maximum subwords per line, not counting the end token.
MAX_LENGTH = 512


def max_tokens(num_positions: int | None) -> int:
    """The maximum subwords per line, not counting the end token.

    Args:
        num_positions: number of learned positions of the model, or `None` if any length is supported.
    """
    return MAX_LENGTH if num_positions is None else min(MAX_LENGTH, num_positions - 1)


def check_no_string(name: str, lines: Iterable[str]) -> None:
    """Checks that the argument `name` is not a single string, whose characters would be used as lines."""
    if isinstance(lines, (str, bytes)):
        raise ValueError(f"`{name}` must be a list of strings. Received: {lines[:80]!r}")


def checked_lines(name: str, lines: Iterable[str]) -> list[str]:
    """Returns the lines of the argument `name` as valid text, which SentencePiece needs.

    Raises:
        ValueError: if `lines` is a string or contains other objects than strings.
    """
    check_no_string(name, lines)
    lines = list(lines)
    wrong = [line for line in lines if not isinstance(line, str)]
    if wrong:
        raise ValueError(f"`{name}` must contain only strings. Received: {wrong[0]!r}")
    return [valid_text(line) for line in lines]


def valid_text(text: str) -> str:
    r"""Replaces lone surrogates by question marks, and removes NUL, which no normalization of SentencePiece does.

    Example:

    >>> valid_text("a\ud800b\0c")
    'a?bc'
    """
    return text.encode("utf-8", errors="replace").decode("utf-8").replace("\0", "")


def encode_lines(
    tokenizer: Tokenizer, lines: Sequence[str], longest: int, numbers: Sequence[int] | None = None
) -> list[list[int]]:
    """Encodes lines to ids, with the end token, and truncates long ones with a warning.

    Args:
        tokenizer: the `Tokenizer`.
        lines: result of `checked_lines`.
        longest: maximum subwords per line, not counting the end token.
        numbers: numbers of the lines, for warnings. Default: from 1.
    """
    sentences = tokenizer.encode(lines)
    warn_of_long(lines, [len(ids) - 1 for ids in sentences], longest, numbers)
    return [ids[:-1][:longest] + ids[-1:] for ids in sentences]


def warn_of_long(
    lines: Sequence[str], lengths: Sequence[int], longest: int, numbers: Sequence[int] | None = None
) -> None:
    """Warns about lines that are truncated. The warning points to the first caller outside this package.

    Args:
        lines: the lines.
        lengths: subwords of each line, not counting the end token.
        longest: maximum subwords per line.
        numbers: numbers of the lines. Default: from 1.
    """
    for number, line, length in zip(numbers or range(1, len(lines) + 1), lines, lengths, strict=True):
        if length > longest:
            warnings.warn(
                f"line {number} has {length} subwords and is truncated to {longest}: {line[:60]}…",
                stacklevel=level_outside_package(),
            )


def level_outside_package():
    """The `stacklevel` of the first caller outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
        frame, level = frame.f_back, level + 1
    return level
