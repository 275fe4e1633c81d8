"""Text files, plain or gzipped, and standard input."""

import contextlib
import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from keras_transformer.text.encoding import canonical_encoding, describe, is_wide

#: The encoding of text files unless another is given.
UTF_8 = "utf-8"


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[BinaryIO]:
    """The bytes of a text file.

    Args:
        path: the file, plain or `.gz`.

    Yields:
        The open file.

    Raises:
        ValueError: naming the file, whatever keeps it from being read.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    with _named_errors(path), opener(path, "rb") as file:
        yield file


def read_lines(path: str | Path, encoding: str = UTF_8) -> list[str]:
    """The lines of a text file, plain or gzipped.

    Args:
        path: the file.
        encoding: its encoding.

    Returns:
        Lines without their ends; see `split_lines`. A byte order mark at the beginning is dropped.

    Raises:
        ValueError: if the file cannot be read, or `encoding` is unknown; naming the line and the probable encoding
            where the file is not in this one.
    """
    with TextLines(path, encoding) as lines:
        return list(lines)


def split_lines(file: BinaryIO, encoding: str = UTF_8) -> Iterator[str]:
    r"""The lines of a text: one ends at `\n` or `\r\n`, of which nothing stays, and nowhere else.

    Args:
        file: the open file; it is left open.
        encoding: its encoding. A line end may be of several bytes, as in UTF-16.

    Yields:
        Lines without their ends.

    Raises:
        UnicodeError: if the bytes are not in the encoding.

    Example:

    >>> list(split_lines(io.BytesIO(b"one\r\n two\r \n\nno end")))
    ['one', ' two\r ', '', 'no end']
    """
    text = io.TextIOWrapper(file, encoding, newline="\n")
    try:
        for line in text:
            yield line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line
    finally:
        with contextlib.suppress(ValueError):  # The file was closed before its last line.
            text.detach()  # Otherwise the file is closed with it.


class TextLines:
    """Iterates once over the lines of a text that may be larger than memory; see `split_lines`.

    A byte order mark at the beginning is dropped.

    Args:
        path: the file, plain or `.gz`. Default: standard input.
        encoding: its encoding.

    Raises:
        ValueError: if the file cannot be read, or `encoding` is unknown; naming the line and the probable encoding
            where the file is not in this one.

    Example:

        with TextLines("corpus.en.gz") as lines:
            for line in lines:
                print(line)
    """

    def __init__(self, path: str | Path | None = None, encoding: str = UTF_8):
        self._name, self._encoding = path or "standard input", canonical_encoding(encoding)
        with _named_errors(self._name):
            self._raw = open(path, "rb") if path else sys.stdin.buffer
            self._size = _size(self._raw)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def __iter__(self) -> Iterator[str]:
        file = gzip.GzipFile(fileobj=self._raw) if str(self._name).endswith(".gz") else self._raw
        with _named_errors(self._name):
            with contextlib.closing(split_lines(file, self._encoding)) as lines:
                yield from self._checked(lines)

    def _checked(self, lines):
        """The lines without a byte order mark; errors name the line and the probable encoding."""
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                if is_wide(line):
                    raise self._error(number, line.encode(self._encoding))
                yield line if number > 1 else line.removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            # The decoder has read on from the last line that came out.
            between = error.object[: error.start].decode(error.encoding, errors="replace")
            raise self._error(number + 1 + between.count("\n"), error.object, error.reason) from error
        except UnicodeError as error:  # UTF-16 and UTF-32 that begin without a mark.
            raise ValueError(
                f"Cannot read {self._name}: {error}; an encoding such as utf-16-le needs none. "
                f"Received: encoding={self._encoding!r}"
            ) from error

    def _error(self, number, sample, reason=None):
        is_cut = reason == "truncated data"  # Of UTF-16 and UTF-32, whose characters have all bytes or none.
        why = "it ends within a character" if is_cut else describe(sample)
        return ValueError(f"Cannot read {self._name}: line {number} is not {self._encoding} text; {why}")

    @property
    def share(self) -> float | None:
        """The share of the file that has been read, above 0; `None` where its size is unknown."""
        return max(self._raw.tell(), 1) / self._size if self._size else None


@contextlib.contextmanager
def _named_errors(path):
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _size(file):
    """Bytes of a file on a disk; 0 of anything else."""
    try:
        status = os.fstat(file.fileno())
    except OSError:  # Of a stream in memory.
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
