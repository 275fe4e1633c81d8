"""Several pairs in one row: which pairs share a row."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from keras_transformer.training.data.rows import ranges

#: Each side of a row is planned in so many units at most, and lengths rounded up to whole ones: the time it takes grows
#: with the square of the number of different pairs of lengths.
_MOST_UNITS = 256


class Order(NamedTuple):
    """Which pairs are where in one epoch."""

    pair_of_place: np.ndarray
    rows: np.ndarray


class Packing:
    """Pairs in rows that have a length for each side, several in each row, so that few places stay empty.

    Which lengths go together is settled once. In each epoch pairs of the same two lengths (in long rows, of about the
    same) change places, and the rows their order: so every epoch has other neighbours, each pair once, and the same
    number of rows.

    Args:
        source: int `(pairs,)`: lengths of one side.
        target: int `(pairs,)`: lengths of the other.
        lengths: of a row, for source and target.

    Attributes:
        num_rows: rows that take up all pairs.

    Raises:
        ValueError: if a sentence is longer than a row.
    """

    def __init__(self, source: np.ndarray, target: np.ndarray, lengths: tuple[int, int]):
        longest = int(source.max()), int(target.max())
        if longest[0] > lengths[0] or longest[1] > lengths[1]:
            raise ValueError(
                f"`lengths` must be at least those of the longest sentences, {longest}. Received: {lengths}"
            )
        (source, source_units), (target, target_units) = map(_in_units, (source, target), lengths)
        numbers = source * (target_units + 1) + target
        classes, class_of_pair, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        self._class_of_pair = class_of_pair.astype(np.min_scalar_type(len(classes)))
        patterns = list(_patterns(*np.divmod(classes, target_units + 1), counts, source_units, target_units))
        # Of the pairs' places, row by row: the class of each; where each row's begin, and where the last one's end.
        class_of_place = np.concatenate([np.tile(pattern, count) for pattern, count in patterns])
        self._places_by_class = np.argsort(class_of_place, kind="stable").astype("int32")
        self._bounds = np.cumsum(np.concatenate([[0], *(np.repeat(len(row), count) for row, count in patterns)]))
        self.num_rows = len(self._bounds) - 1

    def order(self, generator: np.random.Generator | None) -> Order:
        """The pairs of one epoch.

        Args:
            generator: of the order; `None` for a fixed one.
        """
        pairs = np.arange(len(self._class_of_pair), dtype="int32")
        rows = np.arange(self.num_rows, dtype="int32")
        if generator is not None:
            generator.shuffle(pairs)
            generator.shuffle(rows)
        pair_of_place = np.empty_like(pairs)
        pair_of_place[self._places_by_class] = pairs[np.argsort(self._class_of_pair[pairs], kind="stable")]
        return Order(pair_of_place, rows)

    def pairs_of(self, order: Order, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of some rows.

        Args:
            order: of the epoch.
            first: the first row.
            last: the row to stop before; there need not be so many.

        Returns:
            Int `(pairs,)`: the pairs, row after row; and which pair of its row each is, from 1.
        """
        rows = order.rows[first:last]
        sizes = self._bounds[rows + 1] - self._bounds[rows]
        return order.pair_of_place[ranges(self._bounds[rows], sizes)], ranges(np.ones_like(sizes), sizes)


def _in_units(lengths, row_length) -> tuple[np.ndarray, int]:
    """The lengths of sentences and that of a row, in units of so many places."""
    unit = -(-row_length // _MOST_UNITS)
    return np.minimum(-(-lengths.astype("int64") // unit), row_length // unit), row_length // unit


def _patterns(source, target, counts, source_length, target_length) -> Iterator[tuple[np.ndarray, int]]:
    """The rows that take up all pairs: indices of the classes in a row, and how many rows are like this.

    A row takes, as long as one fits, the pair whose two lengths lie best along the two lengths that are free: the
    longest first, and what keeps the sides even.

    Args:
        source: `(classes,)`: lengths of one side.
        target: `(classes,)`: lengths of the other.
        counts: `(classes,)`: pairs of these lengths.
        source_length: of a row.
        target_length: of a row.

    Yields:
        Pairs of int `(pairs of the row,)` and a number of rows.
    """
    remaining = np.flatnonzero(counts)
    while remaining.size:
        row, left, fitting = [], counts.copy(), remaining
        free_source, free_target = source_length, target_length
        while fitting.size:
            best = fitting[(source[fitting] * free_source + target[fitting] * free_target).argmax()]
            row.append(best)
            left[best] -= 1
            free_source -= source[best]
            free_target -= target[best]
            fitting = fitting[(source[fitting] <= free_source) & (target[fitting] <= free_target) & (left[fitting] > 0)]
        used, number = np.unique(row, return_counts=True)
        times = (counts[used] // number).min()
        counts[used] -= times * number
        remaining = remaining[counts[remaining] > 0]
        yield np.array(row), times
