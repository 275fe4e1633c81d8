"""Sentence pairs from any source."""

import dataclasses
from collections.abc import Callable, Iterator


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentence pairs, `(source, target)`, that can be iterated repeatedly.

    Args:
        begin: returns a new iterator.
        count: number of pairs; `None` if unknown.
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
