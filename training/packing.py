"""Several pairs in one row: which pairs share a row."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from keras_transformer.training.rows import ranges

#: Rows are planned in so many units at most, and lengths rounded up to whole ones: the time it takes grows with the
#: square of the number of different pairs of lengths.
_MOST_UNITS = 256


class Order(NamedTuple):
    """Which pairs are where in one epoch."""

    pair_of_place: np.ndarray
    rows: np.ndarray


class Packing:
    """Pairs in rows of so many places for each side, several in each, so that few places stay empty.

    Which lengths go together is settled once. In each epoch pairs of the same two lengths (in long rows, of about the
    same) change places, and the rows their order: so every epoch has other neighbours, each pair once, and the same
    number of rows.

    Args:
        source: int `(pairs,)`: lengths of one side.
        target: int `(pairs,)`: lengths of the other.
        places: of a row, for source and target.

    Attributes:
        num_rows: rows that take up all pairs.

    Raises:
        ValueError: if a sentence is longer than a row.
    """

    def __init__(self, source: np.ndarray, target: np.ndarray, places: tuple[int, int]):
        longest = int(source.max()), int(target.max())
        if longest[0] > places[0] or longest[1] > places[1]:
            raise ValueError(f"`places` must hold the longest sentences, {longest}. Received: {places}")
        unit = -(-max(places) // _MOST_UNITS)
        sizes = [max(side // unit, 1) for side in places]
        source, target = (
            np.minimum(-(-lengths.astype("int64") // unit), size)
            for lengths, size in zip((source, target), sizes, strict=True)
        )
        numbers = source * (sizes[1] + 1) + target
        classes, class_of_pair, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        self._class_of_pair = class_of_pair.astype(np.min_scalar_type(len(classes)))
        patterns = list(_patterns(np.stack(np.divmod(classes, sizes[1] + 1)), counts, sizes))
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


def _patterns(lengths, counts, sizes) -> Iterator[tuple[np.ndarray, int]]:
    """The rows that take up all pairs: indices of the classes in a row, and how many rows are like this.

    A row takes, as long as one fits, the pair whose two lengths lie best along the two lengths that are free, all
    measured by the row's: the longest first, and what keeps the sides even.

    Args:
        lengths: `(2, classes)` of source and target.
        counts: `(classes,)`: pairs of these lengths.
        sizes: the lengths of a row.

    Yields:
        Pairs of int `(pairs of the row,)` and a number of rows.
    """
    source, target = lengths
    # Squares the other way round, so that all numbers stay whole.
    source_weight, target_weight = sizes[1] ** 2, sizes[0] ** 2
    remaining = np.flatnonzero(counts)
    while remaining.size:
        row, left, fitting = [], counts.copy(), remaining
        free_source, free_target = sizes
        while fitting.size:
            along = source[fitting] * (free_source * source_weight) + target[fitting] * (free_target * target_weight)
            best = fitting[along.argmax()]
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
