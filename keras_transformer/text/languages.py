"""Codes of languages."""

import re

_CODE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


def is_language(code: str) -> bool:
    """Whether a text has the form of a language code, BCP 47 without its rare forms.

    Example:

    >>> is_language("en"), is_language("zh-Hans"), is_language("English")
    (True, True, False)
    """
    return bool(_CODE.fullmatch(code))


def check_language(name: str, code: str | None) -> None:
    """Checks the code of a language.

    Args:
        name: argument name in the error message.
        code: the code, or `None`.

    Raises:
        ValueError: if `code` does not have the form of a language code.
    """
    if code is not None and not is_language(code):
        raise ValueError(f"`{name}` must be the code of a language, such as en or zh-Hans. Received: {name}={code!r}")
