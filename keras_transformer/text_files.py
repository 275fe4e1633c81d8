"""Text files, plain or gzipped, and standard input."""

import contextlib
import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO


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


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file, plain or gzipped.

    Args:
        path: the file; UTF-8, where other bytes become replacement characters.

    Returns:
        Lines without their ends; see `split_lines`.

    Raises:
        ValueError: if the file cannot be read.
    """
    with readable(path) as file:
        return list(split_lines(file))


def split_lines(file: Iterable[bytes]) -> Iterator[str]:
    r"""The lines of a text: one ends at `\n` or `\r\n`, of which nothing stays, and nowhere else.

    Args:
        file: the text up to each `\n`, as binary files give it; UTF-8, where other bytes become
            replacement characters.

    Yields:
        Lines without their ends.

    Example:

    >>> list(split_lines([b"one\r\n", b" two\r \n", b"\n", b"no end"]))
    ['one', ' two\r ', '', 'no end']
    """
    for line in file:
        yield line.removesuffix(b"\r\n").removesuffix(b"\n").decode("utf-8", errors="replace")


class TextLines:
    """Iterates once over the lines of a text that may be larger than memory; see `split_lines`.

    Args:
        path: the file, plain or `.gz`. Default: standard input. UTF-8, where other bytes become
            replacement characters.

    Raises:
        ValueError: naming the file, whatever keeps it from being read.

    Example:

        with TextLines("corpus.en.gz") as lines:
            for line in lines:
                print(line)
    """

    def __init__(self, path: str | Path | None = None):
        self._name = path or "standard input"
        with _named_errors(self._name):
            self._raw = open(path, "rb") if path else sys.stdin.buffer
            self._size = _size(self._raw)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def __iter__(self) -> Iterator[str]:
        with _named_errors(self._name):
            yield from split_lines(gzip.GzipFile(fileobj=self._raw) if str(self._name).endswith(".gz") else self._raw)

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
