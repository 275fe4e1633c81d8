"""Checks of arguments.

A problem is a sentence that names an argument and its value. The functions yield the problems of the values that they
get by name, and `require` raises an error for them. `None` passes each check of a number except `counts`.
"""

import contextlib
import itertools
import math
import numbers
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from keras_transformer.version import DISTRIBUTION


def require(*problems: Iterable[str], of: str = "") -> None:
    """Raises an error if there are problems.

    Args:
        *problems: iterables of problems.
        of: first line of the message. Default: the message is the problems alone.

    Raises:
        ValueError: if there are problems. The message lists all of them.
    """
    found = [*itertools.chain(*problems)]
    if found:
        raise ValueError("\n- ".join([f"{of}:", *found]) if of else "\n".join(found))


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """A context for imports of packages of an extra.

    Raises:
        ValueError: if a package is not installed. The message has the command that installs it.
    """
    try:
        yield
    except ImportError as error:
        raise ValueError(f"{error.name} is not installed: pip install '{DISTRIBUTION}[{extra}]'") from error


def fields(config: object, *names: str) -> dict[str, Any]:
    """The values of attributes by name, for the functions below."""
    return {name: getattr(config, name) for name in names}


def at_least(smallest: float, **values) -> Iterator[str]:
    """The problems of numbers below a bound. NaN is one."""
    for name, value in values.items():
        if value is not None and not value >= smallest:
            yield f"`{name}` must be at least {smallest}. Received: {name}={value}"


def counts(smallest: int, **values) -> Iterator[str]:
    """The problems of numbers that are not integers, or below a bound."""
    for name, value in values.items():
        if not isinstance(value, numbers.Integral):
            yield f"`{name}` must be an integer. Received: {name}={value!r}"
        else:
            yield from at_least(smallest, **{name: value})


def positive(**values) -> Iterator[str]:
    """The problems of numbers that are not positive and finite."""
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            yield f"`{name}` must be positive and finite. Received: {name}={value}"


def within(interval: str, **values) -> Iterator[str]:
    """The problems of numbers outside of an interval, such as `"[0, 1)"`, which contains 0 and not 1."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    for name, value in values.items():
        if value is not None and not (
            (low <= value if interval[0] == "[" else low < value)
            and (value <= high if interval[-1] == "]" else value < high)
        ):
            yield f"`{name}` must be in {interval}. Received: {name}={value}"


def one_of(choices: Iterable[str | None], **values) -> Iterator[str]:
    """The problems of values that are none of the choices. `None` must be one of them to be allowed."""
    for name, value in values.items():
        if value not in choices:
            known = ", ".join(choice for choice in choices if choice is not None)
            yield f"`{name}` must be one of {known}. Received: {name}={value!r}"


def same_number(units: str, smallest: int = 0, **groups: Sized) -> Iterator[str]:
    """The problem of groups with different numbers of units, such as lines, or with fewer than `smallest`."""
    sizes = [len(group) for group in groups.values()]
    if len({*sizes}) > 1 or sizes[0] < smallest:
        names, least = " and ".join(f"`{name}`" for name in groups), f", at least {smallest}" if smallest else ""
        yield f"{names} must have the same number of {units}{least}. Received: {' and '.join(map(str, sizes))}"
