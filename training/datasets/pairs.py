"""Sentence pairs from any source."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Lines:
    """Lines of text that can be iterated repeatedly.

    Args:
        begin: returns a new iterator.
        count: number of lines.
    """

    begin: Callable[[], Iterator[str]]
    count: int

    def __iter__(self):
        return self.begin()


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
        parts: name -> pairs of each of several corpora, which `train` chains.
        directions: name -> languages of each corpus, if the corpora have several pairs of languages.
        validation_parts: the texts to validate on, with their languages, if the corpora have several pairs of
            languages. `validation` chains the texts.
    """

    train: Pairs
    validation: Pairs
    languages: tuple[str | None, str | None] = (None, None)
    parts: Mapping[str, Pairs] = dataclasses.field(default_factory=dict)
    directions: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    validation_parts: Sequence[tuple[Pairs, tuple[str | None, str | None]]] = ()

    @property
    def splits(self) -> dict[str, Pairs]:
        """The pairs to train on, by the names under which they are tokenized: `train`, or `train.NAME` of each part."""
        return {f"train.{name}": pairs for name, pairs in self.parts.items()} or {"train": self.train}

    def replaced(self, splits: Mapping[str, Pairs]) -> "Corpus":
        """The corpus with other pairs to train on, under the same names as in `splits`."""
        parts = dict(zip(self.parts, splits.values(), strict=True)) if self.parts else {}
        return dataclasses.replace(self, train=chained([*splits.values()]), parts=parts)


def chained(parts: Sequence[Pairs]) -> Pairs:
    """Pairs that are iterated one after the other."""
    counts = [pairs.count for pairs in parts]
    total = None if None in counts else sum(count for count in counts if count is not None)
    return Pairs(lambda: itertools.chain.from_iterable(parts), total)
