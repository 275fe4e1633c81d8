"""Text in files with one record per line. Readers may split lines at each line break of Unicode."""

import json
import re
from typing import Any

#: Line breaks that JSON does not escape.
_UNESCAPED = re.compile("[\x85\u2028\u2029]")


def one_line(text: str) -> str:
    r"""Replaces the line breaks in a text by spaces.

    Args:
        text: the text.

    Example:

    >>> one_line("two\r\nlines\u2028more\r")
    'two lines more'
    """
    return " ".join(text.splitlines())


def one_column(text: str) -> str:
    r"""Replaces the line breaks and tabs in a text by spaces, for files with tab-separated columns.

    Args:
        text: the text.

    Example:

    >>> one_column("a\tb\rc")
    'a b c'
    """
    return one_line(text).replace("\t", " ")


def json_line(content: Any) -> str:
    r"""Writes JSON on one line, with the letters of all languages as they are.

    Args:
        content: data that JSON can express.

    Example:

    >>> json_line({"text": "ä\u2028\n"})
    '{"text": "ä\\u2028\\n"}'
    """
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(content, ensure_ascii=False))
