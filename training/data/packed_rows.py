"""Rows with several pairs each: their shape and their layout. Uses NumPy only."""

from typing import NamedTuple

import numpy as np

from keras_transformer.storage.rows import TokenSide, laid_out

#: Minimum length of packed rows, on the longer side. Shorter rows have more padding.
_MIN_ROW_LENGTH = 64

#: Inputs of packed batches: those of `Transformer`, with segments.
PACKED_INPUTS = ("source", "target", "source_segments", "target_segments")


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
    """The length of packed rows on the longer side.

    Args:
        longest: length of the longest sentence.
        tokens_per_batch: maximum size of a batch.
    """
    rows = tokens_per_batch // min(max(longest, _MIN_ROW_LENGTH), tokens_per_batch)
    return tokens_per_batch // rows


def packed_rows(
    source: TokenSide, target: TokenSide, pairs: np.ndarray, segments: np.ndarray, shape: Shape
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Lays out packed pairs.

    Args:
        source: the source sentences.
        target: the target sentences.
        pairs: int `(pairs,)`: indices of the pairs, row by row.
        segments: int `(pairs,)`: index of each pair in its row, from 1.
        shape: shape of the batch.

    Returns:
        The inputs `PACKED_INPUTS`, and the labels.
    """
    ours = laid_out(source, pairs, segments, (shape.rows, shape.source))
    theirs = laid_out(target, pairs, segments, (shape.rows, shape.target))
    arrays = ours.ids, theirs.shifted(), ours.segments, theirs.segments
    return dict(zip(PACKED_INPUTS, arrays, strict=True)), theirs.ids
