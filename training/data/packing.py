"""Packing: several pairs in one row. Uses NumPy only."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from keras_transformer.storage.rows import TokenSide, laid_out, ranges

#: Inputs of packed batches: those of `Transformer`, with segments.
PACKED_INPUTS = ("source", "target", "source_segments", "target_segments")
#: Minimum length of packed rows, on the longer side. Shorter rows have more padding.
_MIN_ROW_LENGTH = 64
#: Lengths are rounded up to at most this many units per row, because the time to pack grows with the square of the
#: number of different length pairs.
_MAX_UNITS = 256


class Shape(NamedTuple):
    """Rows of a batch, and their length on each side."""

    rows: int
    source: int
    target: int


def packed_shape(
    source: np.ndarray, target: np.ndarray, tokens_per_batch: int, longest: tuple[int, int] = (0, 0)
) -> Shape:
    """The shape of packed batches. The side with fewer tokens has proportionally shorter rows.

    Args:
        source: int `(pairs,)`: source lengths.
        target: int `(pairs,)`: target lengths.
        tokens_per_batch: maximum size of a batch on the longer side.
        longest: lengths of the longest source and target, if `source` and `target` are a sample.

    Returns:
        A `Shape` whose rows have room for the longest sentences.
    """
    longest = tuple(max(int(lengths.max()), most) for lengths, most in zip((source, target), longest, strict=True))
    tokens = [int(lengths.sum(dtype="int64")) for lengths in (source, target)]
    length = longest_row(max(longest), tokens_per_batch)
    lengths = (max(-(-length * own // max(tokens)), least) for own, least in zip(tokens, longest, strict=True))
    return Shape(tokens_per_batch // length, *lengths)


def longest_row(longest: int, tokens_per_batch: int) -> int:
    """The length of packed rows on the longer side, with room for the longest sentence."""
    rows = tokens_per_batch // min(max(longest, _MIN_ROW_LENGTH), tokens_per_batch)
    return tokens_per_batch // rows


class Order(NamedTuple):
    """The positions of the pairs in one epoch."""

    pair_of_place: np.ndarray
    rows: np.ndarray


class Packing:
    """Assigns pairs to rows of fixed source and target lengths, with little padding.

    The lengths in each row are chosen once. In each epoch, pairs of equal (in long rows, similar) lengths are shuffled
    among their positions, and the rows are shuffled. Every epoch therefore has each pair once, different pairs in a
    row, and the same number of rows.

    Args:
        source: int `(pairs,)`: source lengths.
        target: int `(pairs,)`: target lengths.
        lengths: source and target length of a row.

    Attributes:
        num_rows: number of rows.

    Raises:
        ValueError: if a sentence is longer than a row.
    """

    def __init__(self, source: np.ndarray, target: np.ndarray, lengths: tuple[int, int]):
        longest = int(source.max()), int(target.max())
        if longest[0] > lengths[0] or longest[1] > lengths[1]:
            raise ValueError(
                f"`lengths` must be at least those of the longest sentences, {longest}. Received: lengths={lengths}"
            )
        (source, source_units), (target, target_units) = map(_in_units, (source, target), lengths)
        numbers = source * (target_units + 1) + target
        classes, class_of_pair, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        self._class_of_pair = class_of_pair.astype(np.min_scalar_type(len(classes)))
        patterns = list(_patterns(*np.divmod(classes, target_units + 1), counts, source_units, target_units))
        # The class of each pair position, row by row, and the first position of each row (with the end of the last).
        class_of_place = np.concatenate([np.tile(pattern, count) for pattern, count in patterns])
        self._places_by_class = np.argsort(class_of_place, kind="stable").astype("int32")
        self._bounds = np.cumsum(np.concatenate([[0], *(np.repeat(len(row), count) for row, count in patterns)]))
        self.num_rows = len(self._bounds) - 1

    def order(self, generator: np.random.Generator | None) -> Order:
        """The order of one epoch, random with a generator and fixed without."""
        pairs = np.arange(len(self._class_of_pair), dtype="int32")
        rows = np.arange(self.num_rows, dtype="int32")
        if generator is not None:
            generator.shuffle(pairs)
            generator.shuffle(rows)
        pair_of_place = np.empty_like(pairs)
        pair_of_place[self._places_by_class] = pairs[np.argsort(self._class_of_pair[pairs], kind="stable")]
        return Order(pair_of_place, rows)

    def pairs_of(self, order: Order, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of a range of rows, whose end may exceed the number of rows.

        Returns:
            Int `(pairs,)`: the pairs, row by row; and the segment of each pair in its row, from 1.
        """
        rows = order.rows[first:last]
        sizes = self._bounds[rows + 1] - self._bounds[rows]
        return order.pair_of_place[ranges(self._bounds[rows], sizes)], ranges(np.ones_like(sizes), sizes)


class PackedPairs(NamedTuple):
    """Pairs, packed into rows.

    Attributes:
        source: the source sentences.
        target: the target sentences.
        packing: the rows.
        order: the order of pairs and rows.
    """

    source: TokenSide
    target: TokenSide
    packing: Packing
    order: Order

    def batch(self, number: int, num_rows: int, shape: Shape) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Lays out a batch.

        Args:
            number: index of the batch.
            num_rows: number of rows per batch. The last batch may have fewer.
            shape: shape of the batch, with the empty rows at its end.

        Returns:
            The inputs `PACKED_INPUTS`, and the labels.
        """
        pairs, segments = self.packing.pairs_of(self.order, number * num_rows, (number + 1) * num_rows)
        source, target = (
            laid_out(side, pairs, segments, (shape.rows, length))
            for side, length in ((self.source, shape.source), (self.target, shape.target))
        )
        arrays = source.ids, target.shifted(), source.segments, target.segments
        return dict(zip(PACKED_INPUTS, arrays, strict=True)), target.ids


def _in_units(lengths, row_length) -> tuple[np.ndarray, int]:
    """Sentence lengths (rounded up) and row length in units."""
    unit = -(-row_length // _MAX_UNITS)
    return np.minimum(-(-lengths.astype("int64") // unit), row_length // unit), row_length // unit


def _patterns(source, target, counts, source_length, target_length) -> Iterator[tuple[np.ndarray, int]]:
    """Packs all pairs into rows, and groups equal rows.

    A row is filled greedily: among the pairs that fit, the next is the one whose lengths have the largest inner product
    with the free lengths. This prefers long pairs and keeps both sides balanced.

    Args:
        source: `(classes,)`: source length of each class.
        target: `(classes,)`: target length of each class.
        counts: `(classes,)`: number of pairs of each class.
        source_length: source length of a row.
        target_length: target length of a row.

    Yields:
        The classes in a row, int `(pairs of the row,)`, and the number of equal rows.
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
