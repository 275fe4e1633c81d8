"""Filter for sentence pairs."""

import numpy as np

from keras_transformer.storage.rows import TokenSide, ranges
from keras_transformer.storage.token_directory import Statistics

#: Pairs are kept if their lengths differ by at most this many tokens.
_SLACK = 10


def filter_pairs(
    source: TokenSide, target: TokenSide, config, prefix_lengths: tuple[int, int] = (0, 0)
) -> tuple[np.ndarray, Statistics]:
    """Finds the pairs to train on, and counts the others.

    Args:
        source: source sentences, each with the end id.
        target: target sentences, each with the end id.
        config: a `DataConfig`.
        prefix_lengths: number of tokens before each source sentence, and before each target sentence.

    Returns:
        Bool `(pairs,)`: whether a pair is used, and the `Statistics`. Pairs are removed if a side is empty or too long,
        or if their length ratio is too large.
    """
    shorter, longer = np.minimum(source.lengths, target.lengths), np.maximum(source.lengths, target.lengths)
    empty = (source.lengths < 2 + prefix_lengths[0]) | (target.lengths < 2 + prefix_lengths[1])
    too_long = (longer > config.max_length) & ~empty
    ratio = exceeds_ratio(shorter, longer, config.max_length_ratio, _SLACK) & ~empty & ~too_long
    is_used = ~(empty | too_long | ratio)
    counts = (int(np.count_nonzero(removed)) for removed in (empty, too_long, ratio))
    identical = _count_identical(source, target, is_used, *prefix_lengths)
    return is_used, Statistics(len(shorter), *counts, identical=identical)


def exceeds_ratio(shorter, longer, ratio: float, slack: float):
    """Whether two lengths, numbers or arrays, differ by more than a ratio and also by more than `slack`."""
    return (longer > ratio * shorter) & (longer - shorter > slack)


def is_surely_removed(source: str, target: str, config) -> bool:
    """Whether `filter_pairs` removes a pair with any tokenizer. A word has at least one token, a token one byte."""
    words = [len(side.split()) for side in (source, target)]
    most = min(len(side.encode(errors="replace")) for side in (source, target)) + 2  # With the end and a leading space.
    least = max(words) + 1
    is_too_long = least > config.max_length or exceeds_ratio(most, least, config.max_length_ratio, _SLACK)
    return not all(words) or is_too_long


def _count_identical(source, target, is_used, before_source, before_target):
    same_length = np.flatnonzero(is_used & (source.lengths - before_source == target.lengths - before_target))
    if not same_length.size:
        return 0
    sizes = target.lengths[same_length] - before_target
    ours = source.ids[ranges(source.starts[same_length] + before_source, sizes)]
    theirs = target.ids[ranges(target.starts[same_length] + before_target, sizes)]
    is_identical = np.logical_and.reduceat(ours == theirs, np.cumsum(sizes) - sizes)
    return int(np.count_nonzero(is_identical))
