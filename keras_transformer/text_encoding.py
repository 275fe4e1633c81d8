"""Encodings of text: which ones can be asked for, and which one unknown bytes probably have."""

import codecs

#: The start of a gzip file.
_GZIP = b"\x1f\x8b"
#: Byte order marks, the longer ones first: one of UTF-32 begins like one of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Bytes that a guess is made from.
_SAMPLE_SIZE = 1 << 14
#: Western text in it can be that of its neighbours, too: they differ in signs that are hardly used.
_COMMONEST = "cp1252"


def canonical_encoding(encoding: str) -> str:
    """Python's own name of a text encoding.

    Args:
        encoding: any of its names, such as `"utf-8"`, `"cp1252"` or `"utf-16"`.

    Returns:
        The name.

    Raises:
        ValueError: if the name is unknown, or that of a codec that is not for text.

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
    """What bytes probably are that are not text in the expected encoding, and how to read them.

    Args:
        sample: bytes of a file, those at fault among them; best from its beginning.

    Returns:
        A clause for an error message.
    """
    if sample.startswith(_GZIP):
        return "it looks like a gzip file, whose name must end in .gz"
    name = _wide_encoding(sample) if _is_wide(sample) else _narrow_encoding(sample)
    return f"it is probably {name}, which `--encoding {name}` reads" if name else "it looks like binary data"


def _is_wide(sample):
    return sample.startswith(tuple(mark for mark, _ in _MARKS)) or 3 * sample.count(0) >= len(sample)


def _wide_encoding(sample):
    """UTF-16 or UTF-32, by the mark at its beginning or by its NUL bytes; `None` of what is no text in it."""
    width = 32 if 3 * sample.count(0) > 2 * len(sample) else 16
    by_zeros = f"utf-{width}-{'be' if sample.startswith(bytes(1)) else 'le'}"
    name = next((name for mark, name in _MARKS if sample.startswith(mark)), by_zeros)
    text = sample.decode(name, errors="ignore")
    return name if "\0" not in text and sum(map(str.isprintable, text)) > len(text) / 2 else None


def _narrow_encoding(sample):
    """The encoding whose letters make the likeliest words of the lines that are not plain ASCII."""
    import charset_normalizer  # Here, since only errors need it.

    lines = b"\n".join(line for line in sample.split(b"\n") if not line.isascii())
    matches = charset_normalizer.from_bytes(lines[:_SAMPLE_SIZE])
    best = matches.best()
    if best is None:
        return None
    alike = {name for match in matches if match.chaos <= best.chaos for name in match.could_be_from_charset}
    return _COMMONEST if _COMMONEST in alike else best.encoding


def is_wide(line: str) -> bool:
    r"""Whether a decoded line is full of NUL characters: that of UTF-16, UTF-32 or binary data read as other text.

    Args:
        line: the text.

    Example:

    >>> is_wide("two".encode("utf-16-le").decode("utf-8")), is_wide("two"), is_wide("a\0b")
    (True, False, False)
    """
    count = line.count("\0")
    return count > 1 and 3 * count >= len(line)
