"""Batches of a corpus: shapes, rows and padding. Uses NumPy only."""

import abc
import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.text.tokenization import PAD_ID
from keras_transformer.training.data.buckets import bucket_lengths
from keras_transformer.training.data.packing import Packing
from keras_transformer.training.data.rows import TokenSide, laid_out

#: Minimum length of packed rows, on the longer side. Shorter rows have more padding.
_MIN_ROW_LENGTH = 64

#: Inputs by name, labels and sample weights, of shape `(rows, source)` or `(rows, target)`.
Batch = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


class Shape(NamedTuple):
    """Rows of a batch, and their length on each side."""

    rows: int
    source: int
    target: int


class Batches(abc.ABC):
    """The batches of all epochs, with random access.

    Args:
        source: the source sentences.
        target: the target sentences.
        config: a `BatchConfig`.
        multiple: rows with zero weight pad each batch to a multiple of this: the number of replicas, times the number
            of micro-batches. A batch has the same pairs on any number of devices.

    Attributes:
        inputs: names of the inputs. Each starts with `source` or `target`.
        shapes: `Shape` of each kind of batch, without the rows that `multiple` adds.
        steps_each: number of batches of each shape in an epoch.
        steps: number of batches in an epoch.
        tokens: number of target tokens in an epoch, without padding.

    Raises:
        ValueError: if the longest sentence does not fit into a batch.
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
                f"`tokens_per_batch` must be at least {longest}, the length of the longest sentence. "
                f"Received: tokens_per_batch={config.tokens_per_batch}"
            )

    @property
    def steps(self) -> int:
        return sum(self.steps_each)

    @property
    def padding(self) -> float:
        """Share of target positions that are padding, without the rows that `multiple` adds."""
        batches = zip(self.steps_each, self.shapes, strict=True)
        return 1 - self.tokens / sum(steps * shape.rows * shape.target for steps, shape in batches)

    @abc.abstractmethod
    def _order(self, generator: np.random.Generator | None) -> Any:
        """The random order of an epoch; a fixed order without a generator."""

    @abc.abstractmethod
    def _laid_out(self, order: Any, number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs and labels of batch `number` of an epoch in this order."""

    def training_batch(self, seed: int, step: int) -> Batch:
        """The batch of a training step. The seed and the epoch determine the order of the batches.

        The sample weights are `mask * slots / tokens`, where `slots` and `tokens` count the batch's target positions
        with and without padding. The mean loss over all slots is therefore the mean over the tokens, on any number of
        replicas.

        Args:
            seed: seed of the order.
            step: index of the step, from 0.
        """
        epoch, number = divmod(step, self.steps)
        inputs, labels = self._laid_out(self._order_of_epoch(seed, epoch), number)
        mask = labels != PAD_ID
        return inputs, labels, mask * np.float32(mask.size / np.count_nonzero(mask))

    def validation_batch(self, number: int) -> Batch:
        """A validation batch. The sample weights are 1 for tokens and 0 for padding.

        Args:
            number: index of the batch, from 0.
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
        """The order of an epoch. The last one is cached: with millions of pairs it is slow to compute."""
        known, order = getattr(self, "_last_order", (None, None))
        if known != (seed, epoch):
            order = self._order(np.random.default_rng((seed, epoch)))
            self._last_order = (seed, epoch), order
        return order

    def filled(self, shape: Shape) -> Shape:
        """The shape of the padded batch.

        Args:
            shape: one of `shapes`.

        Returns:
            The `Shape` with the rows that `multiple` adds.
        """
        return shape._replace(rows=-(-shape.rows // self.multiple) * self.multiple)


class BucketedBatches(Batches):
    """Batches with one pair per row. The rows of a batch have similar lengths.

    Arguments, attributes and methods are those of `Batches`.
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
        # Bucket, first pair and end (exclusive) of each batch.
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
    """Batches with several pairs per row and one shape. Their inputs include the segments that `Transformer` takes.

    Arguments, attributes and methods are those of `Batches`.
    """

    inputs = ("source", "target", "source_segments", "target_segments")

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        super().__init__(source, target, config, multiple)
        sides = source.lengths, target.lengths
        longest = [int(lengths.max()) for lengths in sides]
        tokens = [int(lengths.sum(dtype="int64")) for lengths in sides]
        rows = config.tokens_per_batch // min(max(*longest, _MIN_ROW_LENGTH), config.tokens_per_batch)
        # The side with fewer tokens has proportionally shorter rows, but at least the length of its longest sentence.
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
    """`PackedBatches`, or `BucketedBatches` if `config.num_buckets` is set; see `Batches`."""
    kind = PackedBatches if config.num_buckets is None else BucketedBatches
    return kind(source, target, config, multiple)
