r"""The rules of `keras_transformer.text.translatable` for JavaScript."""

import re
from typing import Any

from keras_transformer.storage.source_text import SourceText
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.translatable import (
    BARS,
    MARKERS,
    MARKERS_WITHOUT_NUMBERS,
    PARTS,
    SENTENCE_END,
    writes_ordinals,
)

#: Python's character classes in JavaScript, whose own are of ASCII only.
_CLASSES = {r"\w": r"\p{L}\p{N}_", r"\d": r"\p{Nd}"}
#: Letters in Python, with numbers that are not digits.
_LETTERS = r"[^\W\d_]"


def to_javascript(pattern: str) -> str:
    r"""Converts a regular expression to JavaScript with the flag `u`.

    Args:
        pattern: the pattern, with the character classes `\w`, `\d`, `\s` and `[^\W\d_]` only.

    Example:

    >>> to_javascript(r"\d[\w-]"), to_javascript(r"[^\W\d_]")
    ('[\\p{Nd}][\\p{L}\\p{N}_-]', '[\\p{L}\\p{Nl}\\p{No}]')
    """
    result, is_in_class = "", False
    for token in re.findall(r"\\.|.", pattern.replace(_LETTERS, r"[\p{L}\p{Nl}\p{No}]"), re.DOTALL):
        if token in _CLASSES:
            token = _CLASSES[token] if is_in_class else f"[{_CLASSES[token]}]"
        elif token in "[]":
            is_in_class = token == "["
        result += token
    return result


def protection_of(source_text: SourceText, tokenizer: Tokenizer) -> dict[str, Any]:
    """What `protection.js` must know to keep what is no language, for a source text and its tokenizer."""
    is_ordinal = source_text.language is None or writes_ordinals(source_text.language)
    return {
        "parts": to_javascript(PARTS),
        "markers": to_javascript(MARKERS_WITHOUT_NUMBERS if is_ordinal else MARKERS),
        "bars": to_javascript(BARS),
        "sentence_end": to_javascript(SENTENCE_END),
        "signs": source_text.signs,
        "unknown_ids": tokenizer.unknown_ids,
        "translates_all_lines": source_text.has_untranslatable_lines,
    }
