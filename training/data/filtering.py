"""Which pairs can be learnt from."""

import dataclasses

import numpy as np

from keras_transformer.training.data.rows import TokenSide, ranges


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What one pass over the pairs found; those of two parts of a corpus can be added."""

    pairs: int = 0
    empty: int = 0
    too_long: int = 0
    ratio: int = 0
    identical: int = 0  # kept pairs whose sides are the same subwords: copied, or one file given twice

    @property
    def kept(self) -> int:
        """Pairs that are used."""
        return self.pairs - self.empty - self.too_long - self.ratio

    def __add__(self, other):
        sums = map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        return Statistics(*sums)

    def __str__(self):
        return (
            f"{self.kept:,} of {self.pairs:,} pairs used; left out: {self.empty:,} with an empty side, "
            f"{self.too_long:,} too long, {self.ratio:,} of too unlike lengths"
            + (f"; used, but identical on both sides: {self.identical:,}" if self.identical else "")
        )


def filter_pairs(source: TokenSide, target: TokenSide, config) -> tuple[np.ndarray, Statistics]:
    """Leaves out what cannot be learnt from, and counts it.

    Args:
        source: sentences, each with the end id.
        target: their translations.
        config: a `DataConfig`.

    Returns:
        Bool `(pairs,)`: which pairs are neither empty, nor too long, nor too unlike; and the `Statistics`.
    """
    shorter, longer = np.minimum(source.lengths, target.lengths), np.maximum(source.lengths, target.lengths)
    empty = shorter < 2
    too_long = (longer > config.max_length) & ~empty
    ratio = (longer > config.max_length_ratio * shorter) & (longer - shorter > 10) & ~empty & ~too_long
    is_used = ~(empty | too_long | ratio)
    counts = (int(np.count_nonzero(fault)) for fault in (empty, too_long, ratio))
    return is_used, Statistics(len(shorter), *counts, identical=_count_identical(source, target, is_used))


def _count_identical(source, target, is_used):
    same_length = np.flatnonzero(is_used & (source.lengths == target.lengths))
    if not same_length.size:
        return 0
    sizes = source.lengths[same_length]
    ours, theirs = (side.ids[ranges(side.starts[same_length], sizes)] for side in (source, target))
    is_alike = np.logical_and.reduceat(ours == theirs, np.cumsum(sizes) - sizes)
    return int(np.count_nonzero(is_alike))
