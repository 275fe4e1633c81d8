"""Text encodings: canonical names, and detection of the probable encoding of a file."""

import codecs

#: First bytes of a gzip file.
_GZIP = b"\x1f\x8b"
#: Byte order marks. UTF-32 comes first, because its little-endian mark starts with the mark of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Maximum number of bytes for the detection of an encoding.
_SAMPLE_SIZE = 1 << 14
#: Letters and signs of Western European languages in cp1252, which extends latin-1.
_WESTERN = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜŒŸàáâãäåæçèéêëìíîïñòóôõöøùúûüœÿß„“”‚‘’–—…«»‹›€£°§¿¡\N{NO-BREAK SPACE}")
#: Maximum fraction of letters outside ASCII in Western European text.
_MOST_WESTERN = 0.3


def canonical_encoding(encoding: str) -> str:
    """Returns the canonical Python name of a text encoding.

    Args:
        encoding: name or alias of a text encoding, such as `"utf-8"`, `"cp1252"` or `"utf-16"`.

    Returns:
        The canonical name.

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


def describe(sample: bytes) -> str:
    """Describes the probable format of bytes that could not be decoded, and how to read them.

    Args:
        sample: bytes of a file, preferably its first ones, including those that could not be decoded.

    Returns:
        A clause for an error message.
    """
    if sample.startswith(_GZIP):
        return "it looks like a gzip file, whose name must end in .gz"
    if not _is_wide(sample) and _is_mostly_utf_8(sample):
        return "most other lines are utf-8: repair or remove the lines that are not"
    name = _wide_encoding(sample) if _is_wide(sample) else _narrow_encoding(sample)
    return f"it is probably {name}: use `--encoding {name}`" if name else "it looks like binary data"


def _is_wide(sample):
    return sample.startswith(tuple(mark for mark, _ in _MARKS)) or 3 * sample.count(0) >= len(sample)


def _wide_encoding(sample):
    """Detects UTF-16 or UTF-32 by the byte order mark or the NUL bytes. Returns `None` if the result is not text."""
    width = 32 if 3 * sample.count(0) > 2 * len(sample) else 16
    by_zeros = f"utf-{width}-{'be' if sample.startswith(bytes(1)) else 'le'}"
    name = next((name for mark, name in _MARKS if sample.startswith(mark)), by_zeros)
    text = sample.decode(name, errors="ignore")
    return name if "\0" not in text and sum(map(str.isprintable, text)) > len(text) / 2 else None


def _narrow_encoding(sample):
    """Detects UTF-8 or another extension of ASCII from the lines that are not plain ASCII."""
    import charset_normalizer  # Slow to import, and only needed for error messages.

    lines = b"\n".join(line for line in sample.split(b"\n") if not line.isascii())[:_SAMPLE_SIZE]
    if _is_utf_8(lines):
        return "utf-8"
    if _is_western(lines):
        return "cp1252"
    best = charset_normalizer.from_bytes(lines).best()
    return best and best.encoding


def _is_mostly_utf_8(sample):
    """Whether most lines that are not plain ASCII are UTF-8, but not all."""
    are_utf_8 = [_is_utf_8(line) for line in sample.split(b"\n") if not line.isascii()]
    return not all(are_utf_8) and 2 * sum(are_utf_8) > len(are_utf_8)


def _is_utf_8(sample):
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # Incremental: the last character may be incomplete.
    except UnicodeDecodeError:
        return False
    return True


def _is_western(sample):
    """Whether bytes are probably cp1252: few characters outside ASCII, all of them Western European."""
    text = sample.decode("cp1252", errors="replace")
    beyond = [character for character in text if not character.isascii()]
    return len(beyond) < _MOST_WESTERN * sum(map(str.isalpha, text)) and _WESTERN.issuperset(beyond)


def is_wide(line: str) -> bool:
    r"""Whether a decoded line has many NUL characters, because UTF-16, UTF-32 or binary data was read as other text.

    Args:
        line: the decoded line.

    Example:

    >>> is_wide("two".encode("utf-16-le").decode("utf-8")), is_wide("two"), is_wide("a\0b")
    (True, False, False)
    """
    count = line.count("\0")
    return count > 1 and 3 * count >= len(line)
