"""Mixtures: which pairs of which corpora come in which order. Uses NumPy only."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Stage(NamedTuple):
    """A part of the training with one mixture.

    Attributes:
        weights: share of the pairs from each corpus. The shares sum to 1.
        pairs: number of pairs in the stage; `None` for the last stage, which does not end.
    """

    weights: tuple[float, ...]
    pairs: int | None = None


class Mixture:
    """An endless sequence of blocks of pairs from several corpora.

    Each corpus is an endless sequence of epochs. An epoch contains each pair once, in an order that the seed, the
    corpus and the number of the epoch determine. A block takes the next pairs of each corpus, in the shares of its
    stage. A block is computed without the blocks before it.

    Args:
        sizes: number of pairs of each corpus.
        stages: the stages. Only the last one has no number of pairs.
        block_size: approximate number of pairs in a block. The last block of a stage may be smaller.
    """

    def __init__(self, sizes: Sequence[int], stages: Sequence[Stage], block_size: int):
        self.sizes = tuple(sizes)
        self.stages = tuple(stages)
        self.block_size = block_size
        ends = [_num_blocks(stage, block_size) for stage in self.stages if stage.pairs is not None]
        #: The first block of each stage.
        self.first_blocks = (0, *itertools.accumulate(ends))

    def stage(self, block: int) -> int:
        """The index of the stage of a block."""
        return int(np.searchsorted(self.first_blocks, block, side="right")) - 1

    def taken(self, block: int) -> tuple[int, ...]:
        """The number of pairs of each corpus in all blocks before a block."""
        counts = np.zeros(len(self.sizes), "int64")
        for stage, first, end in zip(self.stages, self.first_blocks, (*self.first_blocks[1:], block), strict=True):
            pairs = self.block_size * (min(block, end) - first)
            if pairs <= 0:
                break
            counts += _shares(stage.weights, pairs if stage.pairs is None else min(pairs, stage.pairs))
        return tuple(counts.tolist())

    def parts(self, block: int) -> list[range]:
        """The pairs of each corpus in a block, as indices in the endless sequence of its epochs."""
        return list(map(range, self.taken(block), self.taken(block + 1)))

    def pairs(self, seed: int, block: int) -> list[np.ndarray]:
        """The indices of the pairs of each corpus in a block, in the order of their epochs."""
        return [self._pairs(seed, corpus, part) for corpus, part in enumerate(self.parts(block))]

    def _pairs(self, seed, corpus, part):
        size, pieces = self.sizes[corpus], []
        first, end = part.start, part.stop
        while first < end:
            epoch, start = divmod(first, size)
            stop = min(size, start + end - first)
            pieces.append(_permutations(corpus)(size, seed, epoch)[start:stop])
            first += stop - start
        return np.concatenate(pieces) if pieces else np.zeros(0, "int32")


@functools.cache
def _permutations(corpus):
    """Makes the orders of a corpus. Keeps the last two, because a block may extend into the next epoch."""

    @functools.lru_cache(maxsize=2)
    def permutation(size, seed, epoch) -> np.ndarray:
        order = np.arange(size, dtype="int32")
        np.random.default_rng((seed, corpus, epoch)).shuffle(order)
        return order

    return permutation


def _shares(weights, pairs) -> np.ndarray:
    """The number of pairs of each corpus among a number of pairs. No entry decreases when `pairs` increases."""
    return np.round(np.multiply(weights, pairs)).astype("int64")


def _num_blocks(stage, block_size) -> int:
    """The number of blocks of a stage with an end. A last block in which no corpus has a pair is omitted."""
    count = -(-stage.pairs // block_size)
    before = _shares(stage.weights, block_size * (count - 1))
    return count if (_shares(stage.weights, stage.pairs) > before).any() else count - 1


def make_stages(
    stages: Sequence | None, weights: Mapping[str, float | None], sizes: Mapping[str, int]
) -> tuple[Stage, ...]:
    """The stages of a training; without `StageConfig`s one, with the weights or the sizes of the splits as shares."""
    if not stages:
        return (Stage(_normalized([weights.get(split) or size for split, size in sizes.items()])),)
    result = []
    for stage in stages:
        shares = dict(zip(sizes, _normalized([stage.weights.get(_name(split), 0.0) for split in sizes]), strict=True))
        pairs = None
        if stage.epochs is not None:
            counted = next(split for split in sizes if _name(split) == stage.counted)
            # At least a pair of the corpus with the largest share.
            pairs = max(round(stage.epochs * sizes[counted] / shares[counted]), len(stage.weights))
        result.append(Stage(tuple(shares.values()), pairs))
    return tuple(result)


def _name(split):
    return split.partition(".")[2]


def _normalized(weights) -> tuple[float, ...]:
    return tuple(weight / sum(weights) for weight in weights)
