"""The kinds of values that options take, in plain words."""

from typing import Any, Literal, get_args, get_origin

_WORDS = {bool: "true or false", int: "integer", float: "number", str: "text", dict: "mapping", list: "list"}


def describe_kind(kind: Any) -> str:
    """Describes the values of a type.

    Args:
        kind: a type annotation. `None` in a union is left out.

    Example:

    >>> describe_kind(int | None), describe_kind(list[str] | str), describe_kind(Literal["a", "b", "c"])
    ('integer', 'list of text, or text', 'a, b or c')
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join([", ".join(map(str, arguments[:-1])), str(arguments[-1])])
    if origin is list and arguments == (str,):
        return "list of text"
    if origin not in (None, list, dict):
        return ", or ".join(describe_kind(part) for part in arguments if part is not type(None))
    return next(words for known, words in _WORDS.items() if issubclass(origin or kind, known))


def with_article(words: str) -> str:
    """Adds the article to the result of `describe_kind`, where it is one noun.

    Example:

    >>> with_article("integer"), with_article("text")
    ('an integer', 'text')
    """
    articles = {"integer": "an ", "number": "a ", "mapping": "a ", "list": "a "}
    return articles.get(words, "") + words


def allows_none(kind: Any) -> bool:
    """Whether an option of this type may be `null`."""
    return type(None) in get_args(kind)
