"""Pairs of sentences, wherever they come from."""

import dataclasses
from collections.abc import Callable, Iterator


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of lines, `(source, target)`, that can be gone through again and again.

    Args:
        begin: makes an iterator of them.
        count: how many come, where that is known.
    """

    begin: Callable[[], Iterator[tuple[str, str]]]
    count: int | None

    def __iter__(self):
        return self.begin()


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training and validation text."""

    train: Pairs
    validation: Pairs
