"""Files with a line of text per record: reading them, plain or gzipped, and text that stays on one line."""

import codecs
import contextlib
import gzip
import io
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

#: Default encoding of text files.
UTF_8 = "utf-8"
#: Line breaks of Unicode that JSON does not escape. Other programs may split lines at them.
_UNESCAPED = re.compile("[\x85\u2028\u2029]")


def canonical_encoding(encoding: str) -> str:
    """The canonical Python name of a text encoding.

    Raises:
        ValueError: if the encoding is unknown or is not a text encoding.

    Example:

    >>> canonical_encoding("UTF8")
    'utf-8'
    """
    try:
        "\n".encode(encoding)
        return codecs.lookup(encoding).name
    except (LookupError, ValueError) as error:
        raise ValueError(
            "`encoding` must be a text encoding that Python knows, such as utf-8, cp1252 or utf-16. "
            f"Received: encoding={encoding!r}"
        ) from error


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Context manager that opens a text file for reading bytes, decompressed if its name ends in `.gz`.

    Raises:
        ValueError: if the file cannot be read. The message contains its name.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    with _named_errors(path), opener(path, "rb") as file:
        yield file


def read_lines(path: str | Path, encoding: str = UTF_8) -> list[str]:
    """Reads the lines of a text file; see `TextLines`."""
    with TextLines(path, encoding) as lines:
        return list(lines)


def split_lines(file: BinaryIO | gzip.GzipFile, encoding: str = UTF_8) -> Generator[str]:
    r"""Splits an open file into lines at `\n` and `\r\n` only, not at other line separators of Unicode.

    The encoding may use several bytes per character, as UTF-16 does. The file is not closed.

    Example:

    >>> list(split_lines(io.BytesIO(b"one\r\n two\r \n\nno end")))
    ['one', ' two\r ', '', 'no end']
    """
    text = io.TextIOWrapper(file, encoding, newline="\n")
    try:
        for line in text:
            yield line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line
    finally:
        with contextlib.suppress(ValueError):  # The caller closed the file early.
            text.detach()  # Otherwise `text` closes the file when it is deleted.


class TextLines:
    """Streams the lines of a text file, which may be larger than memory; see `split_lines`.

    The object can be iterated once. A byte order mark and NUL characters are removed.

    Args:
        path: the file, plain or `.gz`. Default: standard input.
        encoding: encoding of the file.

    Raises:
        ValueError: if the file cannot be read, `encoding` is unknown, or the file has another encoding. In the last
            case the message contains the line number.

    Example:

        with TextLines("corpus.en.gz") as lines:
            for line in lines:
                print(line)
    """

    def __init__(self, path: str | Path | None = None, encoding: str = UTF_8):
        self._name, self._encoding = path or "standard input", canonical_encoding(encoding)
        if not path and sys.stdin is None:
            raise ValueError("standard input is closed; give a file")
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
        """Removes the byte order mark and NUL, and adds the line number to errors."""
        number = 0
        try:
            for number, line in enumerate(lines, 1):
                if _is_wide(line):
                    raise self._error(number)
                yield (line if number > 1 else line.removeprefix("\ufeff")).replace("\0", "")
        except UnicodeDecodeError as error:
            # The decoder reads ahead, so the error may be several lines after the last yielded line.
            between = error.object[: error.start].decode(error.encoding, errors="replace")
            raise self._error(number + 1 + between.count("\n")) from error
        except UnicodeError as error:  # UTF-16 or UTF-32 without a byte order mark.
            raise ValueError(
                f"Cannot read {self._name}: {error}. An encoding without byte order mark is, for example, utf-16-le. "
                f"Received: encoding={self._encoding!r}"
            ) from error

    def _error(self, number):
        return ValueError(
            f"Cannot read {self._name}: line {number} is not {self._encoding} text. Repair it; or give the encoding of "
            "the file, such as `--encoding cp1252` or `--encoding utf-16`; the name of a gzip file must end in .gz"
        )

    @property
    def share(self) -> float | None:
        """Fraction of the file that has been read, above 0. `None` if the file size is unknown."""
        return max(self._raw.tell(), 1) / self._size if self._size else None


@contextlib.contextmanager
def _named_errors(path):
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _size(file):
    """The size of a regular file in bytes; 0 for pipes and other streams."""
    try:
        status = os.fstat(file.fileno())
    except OSError:  # A stream in memory has no file descriptor.
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _is_wide(line):
    """Whether a decoded line has many NUL characters, because UTF-16, UTF-32 or binary data was read as other text."""
    count = line.count("\0")
    return count > 1 and 3 * count >= len(line)


def one_line(text: str) -> str:
    r"""Replaces the line breaks in a text by spaces.

    Example:

    >>> one_line("two\r\nlines\u2028more\r")
    'two lines more'
    """
    return " ".join(text.splitlines())


def one_column(text: str) -> str:
    """Replaces the line breaks and tabs in a text by spaces, for files with tab-separated columns."""
    return one_line(text).replace("\t", " ")


def json_line(content: Any) -> str:
    r"""Writes JSON on one line, with the letters of all languages as they are.

    Example:

    >>> json_line({"text": "ä\u2028\n"})
    '{"text": "ä\\u2028\\n"}'
    """
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(content, ensure_ascii=False))
