"""Token ids of a corpus, and their layout in the rows of a batch."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.config import BOS_ID, PAD_ID


class TokenSide:
    """The sentences of one side of a corpus, concatenated.

    Args:
        ids: int `(tokens,)`: token ids, in memory or memory-mapped.
        lengths: int `(sentences,)`: number of tokens of each sentence.
    """

    def __init__(self, ids: np.ndarray, lengths: np.ndarray):
        self.ids = ids
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths

    @classmethod
    def of_lists(cls, rows: Sequence[Sequence[int]]) -> "TokenSide":
        """Makes a side from lists of token ids."""
        lengths = np.fromiter(map(len, rows), "int32", len(rows))
        return cls(np.fromiter(itertools.chain.from_iterable(rows), "int32", lengths.sum()), lengths)

    @classmethod
    def concatenated(cls, sides: Sequence["TokenSide"]) -> "TokenSide":
        """Concatenates the sentences of several sides."""
        return cls(*(np.concatenate([getattr(side, name) for side in sides]) for name in ("ids", "lengths")))

    def take(self, sentences: np.ndarray) -> "TokenSide":
        """Selects sentences by index, in this order."""
        lengths = np.asarray(self.lengths[sentences])
        return TokenSide(np.asarray(self.ids[ranges(self.starts[sentences], lengths)]), lengths)

    def lists(self) -> list[list[int]]:
        """The token ids of each sentence."""
        ids = self.ids.tolist()
        starts = self.starts.tolist()
        return [ids[start:end] for start, end in itertools.pairwise([*starts, len(ids)])]


class Rows(NamedTuple):
    """Sentences laid out in rows."""

    ids: np.ndarray  # (rows, length)
    segments: np.ndarray  # (rows, length): index of the sentence in its row, from 1; 0 for padding
    starts: np.ndarray  # (sentences,): positions of the first tokens in the flattened rows

    def shifted(self) -> np.ndarray:
        """Decoder inputs: each sentence shifted right, after the start token."""
        ids = np.where(self.ids == PAD_ID, PAD_ID, np.roll(self.ids, 1))
        ids.flat[self.starts] = BOS_ID
        return ids


def laid_out(side: TokenSide, sentences: np.ndarray, segments: np.ndarray, shape: tuple[int, int]) -> Rows:
    """Lays out sentences in rows of int32, padded with segment 0.

    Args:
        side: the side of the corpus.
        sentences: int `(sentences,)`: indices of the sentences, row by row.
        segments: int `(sentences,)`: index of each sentence in its row. Every 1 starts a new row.
        shape: number and length of the rows.
    """
    sizes, is_first = side.lengths[sentences], segments == 1
    before = np.cumsum(sizes) - sizes
    row = np.cumsum(is_first) - 1
    starts = row * shape[1] + before - before[is_first][row]
    places = ranges(starts, sizes)
    rows = Rows(np.full(shape, PAD_ID, "int32"), np.zeros(shape, "int32"), starts)
    rows.ids.ravel()[places] = side.ids[ranges(side.starts[sentences], sizes)]
    rows.segments.ravel()[places] = np.repeat(segments, sizes)
    return rows


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenates ranges: `sizes[i]` consecutive integers from `starts[i]`.

    Example:

    >>> ranges(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts - before, sizes)
