"""Several pairs in one row: which pairs share a row, and the batches that come of it. NumPy alone."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.tokenization import BOS_ID, PAD_ID


class TokenSide:
    """The sentences of one side of a corpus, one after another.

    Args:
        ids: int `(tokens,)`; an array, or a file that is mapped into memory.
        lengths: int `(sentences,)`: how many of the ids are each sentence's.
    """

    def __init__(self, ids: np.ndarray, lengths: np.ndarray):
        self.ids = ids
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths


class Packing:
    """Pairs in rows of `length` places a side, several in each, so that few places stay empty.

    Which lengths go together is settled once. In each epoch pairs of the same two lengths change places, and the rows
    their order: so every epoch has other neighbours, each pair once, and the same number of batches.

    Args:
        source: the sentences of one side.
        target: their translations.
        length: places of a row.
        rows: rows of a batch.
        multiple: rows of padding fill each batch up to a multiple of this.

    Attributes:
        shape: of the batches.

    Raises:
        ValueError: if a sentence is longer than a row.
    """

    def __init__(self, source: TokenSide, target: TokenSide, length: int, rows: int, multiple: int = 1):
        self.sides = source, target
        self.rows = rows
        self.shape = (-(-rows // multiple) * multiple, length)
        longest = max(source.lengths.max(), target.lengths.max())
        if longest > length:
            raise ValueError(f"`length` must be at least that of the longest sentence, {longest}. Received: {length}")
        numbers = source.lengths * (length + 1) + target.lengths
        classes, self._class_of_pair, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        patterns = list(_patterns(np.stack(np.divmod(classes, length + 1), axis=1), counts, length))
        # Of the pairs' places, row by row: the class of each; where each row's begin, and where the last one's end.
        self._class_of_place = np.concatenate([np.tile(pattern, count) for pattern, count in patterns])
        self._bounds = np.cumsum(np.concatenate([[0], *(np.repeat(len(row), count) for row, count in patterns)]))

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return -(-(len(self._bounds) - 1) // self.rows)

    def epoch(self, seed: Sequence[int] | None) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        """The batches of one pass over the pairs, of one shape.

        Args:
            seed: of the order; `None` for a fixed one.

        Yields:
            Pairs of the inputs `{"source", "target", "source_segments", "target_segments"}` and the labels, all
            int32 of `shape`; segments count from 1, padding is of segment 0.
        """
        pair_of_place, order = self._order(seed)
        for start in range(0, len(order), self.rows):
            rows = order[start : start + self.rows]
            sizes = self._bounds[rows + 1] - self._bounds[rows]
            pairs = pair_of_place[_ranges(self._bounds[rows], sizes)]
            segments = _ranges(np.ones_like(sizes), sizes)
            source, target = (_laid_out(side, pairs, segments, self.shape) for side in self.sides)
            inputs = {"source": source.ids, "target": target.shifted()}
            yield inputs | {"source_segments": source.segments, "target_segments": target.segments}, target.ids

    def _order(self, seed):
        """The pair in each place, and the order of the rows."""
        pairs, rows = np.arange(len(self._class_of_pair)), np.arange(len(self._bounds) - 1)
        if seed is not None:
            generator = np.random.default_rng(seed)
            pairs, rows = generator.permutation(pairs), generator.permutation(rows)
        pair_of_place = np.empty_like(pairs)
        by_class = np.argsort(self._class_of_pair[pairs], kind="stable")
        pair_of_place[np.argsort(self._class_of_place, kind="stable")] = pairs[by_class]
        return pair_of_place, rows


def _patterns(lengths, counts, row_length):
    """The rows that take up all pairs: indices of the classes in a row, and how many rows are like this.

    A row takes, as long as one fits, the pair whose two lengths lie best along the two lengths that are free: the
    longest first, and what keeps the sides even.

    Args:
        lengths: `(classes, 2)` of source and target.
        counts: `(classes,)`: pairs of these lengths.
        row_length: places of a row, a side.

    Yields:
        Pairs of int `(pairs of the row,)` and a number of rows.
    """
    while counts.any():
        row, left, free = [], counts.copy(), np.array([row_length, row_length])
        fitting = np.flatnonzero(left)
        while fitting.size:
            best = fitting[(lengths[fitting] @ free).argmax()]
            row.append(best)
            left[best] -= 1
            free -= lengths[best]
            fitting = fitting[(left[fitting] > 0) & (lengths[fitting] <= free).all(axis=1)]
        used, number = np.unique(row, return_counts=True)
        times = (counts[used] // number).min()
        counts[used] -= times * number
        yield np.array(row), times


class _Rows(NamedTuple):
    """Sentences in rows."""

    ids: np.ndarray  # (rows, length)
    segments: np.ndarray  # (rows, length): which sentence of the row, from 1
    starts: np.ndarray  # (sentences,): places of their first tokens, row after row

    def shifted(self):
        """What the decoder reads: each sentence behind the start and without its last token."""
        ids = np.where(self.ids == PAD_ID, PAD_ID, np.roll(self.ids, 1))
        ids.flat[self.starts] = BOS_ID
        return ids


def _laid_out(side, sentences, segments, shape):
    """These sentences in rows, each of which begins with a segment 1."""
    sizes, is_first = side.lengths[sentences], segments == 1
    before = np.cumsum(sizes) - sizes
    row = np.cumsum(is_first) - 1
    starts = row * shape[1] + before - before[is_first][row]
    places = _ranges(starts, sizes)
    rows = _Rows(np.full(shape, PAD_ID, "int32"), np.zeros(shape, "int32"), starts)
    rows.ids.flat[places] = side.ids[_ranges(side.starts[sentences], sizes)]
    rows.segments.flat[places] = np.repeat(segments, sizes)
    return rows


def _ranges(starts, sizes):
    """`starts[0]`, `starts[0]` + 1, … of each size, joined."""
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts - before, sizes)
