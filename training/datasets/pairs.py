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
    """Training and validation text.

    Attributes:
        train: pairs to train on.
        validation: pairs to validate on.
        languages: codes of the source language and of the target language; `None` if unknown.
    """

    train: Pairs
    validation: Pairs
    languages: tuple[str | None, str | None] = (None, None)
