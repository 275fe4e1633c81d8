"""Numbers of things in messages."""


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 line` and `2,000 lines`.

    Args:
        number: how many.
        noun: the singular, whose plural ends in `s`.

    Example:

    >>> counted(1, "line"), counted(0, "line"), counted(2000, "source line")
    ('1 line', '0 lines', '2,000 source lines')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
