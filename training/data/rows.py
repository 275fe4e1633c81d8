"""Sentences as ids, one after another, and how they are laid out in the rows of a batch."""

from typing import NamedTuple

import numpy as np

from keras_transformer.text.tokenization import BOS_ID, PAD_ID


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


class Rows(NamedTuple):
    """Sentences in rows."""

    ids: np.ndarray  # (rows, length)
    segments: np.ndarray  # (rows, length): which sentence of the row, from 1
    starts: np.ndarray  # (sentences,): places of their first tokens, row after row

    def shifted(self) -> np.ndarray:
        """What the decoder reads: each sentence behind the start and without its last token."""
        ids = np.where(self.ids == PAD_ID, PAD_ID, np.roll(self.ids, 1))
        ids.flat[self.starts] = BOS_ID
        return ids


def laid_out(side: TokenSide, sentences: np.ndarray, segments: np.ndarray, shape: tuple[int, int]) -> Rows:
    """These sentences in rows.

    Args:
        side: where they are taken from.
        sentences: int `(sentences,)`: which, row after row.
        segments: int `(sentences,)`: which each is of its row; with every 1 a row begins.
        shape: rows and places of a row.

    Returns:
        `Rows`, all int32; what is left empty is padding, of segment 0.
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
    """`starts[0]`, `starts[0]` + 1, … of each size, joined.

    Example:

    >>> ranges(np.array([5, 1]), np.array([2, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    before = np.cumsum(sizes) - sizes
    return np.arange(sizes.sum()) + np.repeat(starts - before, sizes)
