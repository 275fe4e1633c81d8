"""Text files, plain or gzipped."""

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file, plain or gzipped.

    Args:
        path: the file; UTF-8, where other bytes become replacement characters.

    Returns:
        Lines without their ends.

    Raises:
        ValueError: if the file cannot be read.
    """
    with readable(path) as file:
        text = file.read().decode("utf-8", errors="replace").replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n") if text else []


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[BinaryIO]:
    """A file open for reading, unpacked if its name ends in `.gz`.

    Args:
        path: the file.

    Raises:
        ValueError: if it cannot be read, while it is open too.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
