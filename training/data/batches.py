"""The batches of a corpus: what is put into a row, in which shapes, and how much of them is padding. NumPy alone."""

import abc
import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.text.tokenization import PAD_ID
from keras_transformer.training.data.buckets import bucket_lengths
from keras_transformer.training.data.packing import Packing
from keras_transformer.training.data.rows import TokenSide, laid_out

#: Rows of several pairs are at least so long on the longer side: shorter ones would leave more places empty.
_SHORTEST_ROW = 64

#: The inputs by their names, the labels and the sample weights: `(rows, source)` or `(rows, target)`.
Batch = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


class Shape(NamedTuple):
    """Rows of a batch, and their lengths on each side."""

    rows: int
    source: int
    target: int


class Batches(abc.ABC):
    """The batches of every epoch, any of which can be made without those before it.

    Args:
        source: the sentences of one side.
        target: their translations.
        config: a `BatchConfig`.
        multiple: rows without weight fill each batch up to a multiple of this, the number of parts that are
            computed apart. So a batch holds the same pairs on any number of devices.

    Attributes:
        inputs: names of the inputs; each begins with that of its side.
        shapes: the `Shape`s of the batches, without the rows that fill them up.
        steps_each: batches of each shape in a pass over the pairs.
        steps: batches of a pass.
        tokens: real target tokens of a pass.

    Raises:
        ValueError: if a batch has no room for the longest sentence.
    """

    inputs: tuple[str, ...] = ("source", "target")
    shapes: list[Shape]
    steps_each: list[int]

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        self.source, self.target, self.multiple = source, target, multiple
        self.tokens = int(target.lengths.sum(dtype="int64"))
        longest = max(source.lengths.max(), target.lengths.max())
        if longest > config.tokens_per_batch:
            raise ValueError(
                f"`tokens_per_batch` must be at least {longest}, the longest sentence. "
                f"Received: tokens_per_batch={config.tokens_per_batch}"
            )

    @property
    def steps(self) -> int:
        return sum(self.steps_each)

    @property
    def padding(self) -> float:
        """Share of the target's places, without the rows that fill up to a multiple."""
        batches = zip(self.steps_each, self.shapes, strict=True)
        return 1 - self.tokens / sum(steps * shape.rows * shape.target for steps, shape in batches)

    @abc.abstractmethod
    def _order(self, generator: np.random.Generator | None) -> Any:
        """What of an epoch is random; fixed without a generator."""

    @abc.abstractmethod
    def _laid_out(self, order: Any, number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs and labels of a batch of the epoch of this order."""

    def training_batch(self, seed: int, step: int) -> Batch:
        """The batch of a step; each epoch has an order of its own, which the seed decides.

        The sample weights are `mask * slots / real tokens` of the whole batch, so that a loss averaged over its slots
        is the mean over its real tokens on any number of replicas.

        Args:
            seed: of the order.
            step: from 0.
        """
        epoch, number = divmod(step, self.steps)
        inputs, labels = self._laid_out(self._order_of_epoch(seed, epoch), number)
        mask = labels != PAD_ID
        return inputs, labels, mask * np.float32(mask.size / np.count_nonzero(mask))

    def validation_batch(self, number: int) -> Batch:
        """One of the batches of a pass; the weights are 1 for real tokens, so that metrics are means over the corpus.

        Args:
            number: from 0.
        """
        inputs, labels = self._laid_out(self._fixed_order, number)
        return inputs, labels, (labels != PAD_ID).astype("float32")

    @functools.cached_property
    def _fixed_order(self):
        return self._order(None)

    def _in_rows(self, pairs, segments, shape):
        rows, *lengths = self.filled(shape)
        return (
            laid_out(side, pairs, segments, (rows, length))
            for side, length in zip((self.source, self.target), lengths, strict=True)
        )

    def _order_of_epoch(self, seed, epoch):
        """Kept until another epoch is asked for: with millions of pairs it takes a moment."""
        known, order = getattr(self, "_last_order", (None, None))
        if known != (seed, epoch):
            order = self._order(np.random.default_rng((seed, epoch)))
            self._last_order = (seed, epoch), order
        return order

    def filled(self, shape: Shape) -> Shape:
        """What is computed.

        Args:
            shape: one of `shapes`.

        Returns:
            The `Shape` with the rows that fill its batches up.
        """
        return shape._replace(rows=-(-shape.rows // self.multiple) * self.multiple)


class BucketedBatches(Batches):
    """A pair a row; the rows of a batch have about one length.

    Args, attributes and methods are those of `Batches`.
    """

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        super().__init__(source, target, config, multiple)
        longer = np.maximum(source.lengths, target.lengths)
        lengths = bucket_lengths(np.bincount(longer), config.num_buckets)
        bucket = np.searchsorted(lengths, longer).astype("uint16")
        self._pairs = np.argsort(bucket, kind="stable").astype("int32")
        self._bounds = np.cumsum([0, *np.bincount(bucket)])
        self.shapes = [
            Shape(config.tokens_per_batch // length, *(int(side.lengths[pairs].max()) for side in (source, target)))
            for length, pairs in zip(lengths, np.split(self._pairs, self._bounds[1:-1]), strict=True)
        ]
        # Of each batch: its bucket, its first pair, and the pair to stop before.
        self._batches = [
            (i, first, min(first + shape.rows, end))
            for i, (shape, (start, end)) in enumerate(zip(self.shapes, itertools.pairwise(self._bounds), strict=True))
            for first in range(start, end, shape.rows)
        ]
        self.steps_each = np.bincount([bucket for bucket, _, _ in self._batches]).tolist()

    def _order(self, generator):
        pairs, batches = self._pairs, np.arange(self.steps)
        if generator is not None:
            pairs = pairs.copy()
            for bucket in np.split(pairs, self._bounds[1:-1]):
                generator.shuffle(bucket)
            generator.shuffle(batches)
        return pairs, batches

    def _laid_out(self, order, number):
        pairs, batches = order
        bucket, first, last = self._batches[batches[number]]
        source, target = self._in_rows(pairs[first:last], np.ones(last - first, "int32"), self.shapes[bucket])
        return {"source": source.ids, "target": target.shifted()}, target.ids


class PackedBatches(Batches):
    """Several pairs a row, in one shape; the batches bring the segments that `Transformer` takes.

    Args, attributes and methods are those of `Batches`.
    """

    inputs = ("source", "target", "source_segments", "target_segments")

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        super().__init__(source, target, config, multiple)
        sides = source.lengths, target.lengths
        longest = [int(lengths.max()) for lengths in sides]
        tokens = [int(lengths.sum(dtype="int64")) for lengths in sides]
        rows = config.tokens_per_batch // min(max(*longest, _SHORTEST_ROW), config.tokens_per_batch)
        # The side of fewer tokens has rows that are shorter in proportion, as far as its longest sentence lets them.
        length = config.tokens_per_batch // rows
        lengths = tuple(max(-(-length * own // max(tokens)), least) for own, least in zip(tokens, longest, strict=True))
        self.shapes = [Shape(rows, *lengths)]
        self._packing = Packing(*sides, lengths)
        self.steps_each = [-(-self._packing.num_rows // rows)]

    def _order(self, generator):
        return self._packing.order(generator)

    def _laid_out(self, order, number):
        (shape,) = self.shapes
        pairs, segments = self._packing.pairs_of(order, number * shape.rows, (number + 1) * shape.rows)
        source, target = self._in_rows(pairs, segments, shape)
        inputs = {"source": source.ids, "target": target.shifted()}
        return inputs | {"source_segments": source.segments, "target_segments": target.segments}, target.ids


def make_batches(source: TokenSide, target: TokenSide, config, multiple: int = 1) -> Batches:
    """`PackedBatches`, or with a number of buckets `BucketedBatches`; see `Batches`."""
    kind = PackedBatches if config.num_buckets is None else BucketedBatches
    return kind(source, target, config, multiple)
