"""Batches of a corpus: shapes, rows and padding. Uses NumPy only."""

import abc
import functools
import itertools
from typing import Any

import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.storage.rows import TokenSide, laid_out
from keras_transformer.training.data.packing import PACKED_INPUTS, PackedPairs, Packing, Shape, packed_shape

#: Inputs by name, labels and sample weights, of shape `(rows, source)` or `(rows, target)`.
Batch = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


class Batches(abc.ABC):
    """The batches of all epochs.

    Args:
        config: a `BatchConfig`.
        longest: number of tokens of the longest sentence.
        multiple: rows with zero weight pad each batch to a multiple of this: the number of replicas, times the number
            of micro-batches. A batch has the same pairs on any number of devices.

    Attributes:
        inputs: names of the inputs. Each starts with `source` or `target`.
        shapes: `Shape` of each kind of batch, without the rows that `multiple` adds.
        steps_each: number of batches of each shape in an epoch.
        steps: number of batches in an epoch.
        tokens: number of target tokens in an epoch, without padding.
        stage_starts: approximate first step of each stage of the training.
        failure: the error that has ended the making of batches, if there is one. A backend may raise another error.

    Raises:
        ValueError: if the longest sentence does not fit into a batch.
    """

    inputs: tuple[str, ...]
    shapes: list[Shape]
    steps_each: list[int]
    tokens: int
    stage_starts: tuple[int, ...] = (0,)
    failure: Exception | None = None

    def __init__(self, config, longest: int, multiple: int):
        if longest > config.tokens_per_batch:
            raise ValueError(
                f"`tokens_per_batch` must be at least {longest}, the length of the longest sentence. "
                f"Received: tokens_per_batch={config.tokens_per_batch}"
            )
        self.multiple = multiple

    @property
    def steps(self) -> int:
        return sum(self.steps_each)

    @property
    def padding(self) -> float:
        """Share of target positions that are padding, without the rows that `multiple` adds."""
        batches = zip(self.steps_each, self.shapes, strict=True)
        return 1 - self.tokens / sum(steps * shape.rows * shape.target for steps, shape in batches)

    def filled(self, shape: Shape) -> Shape:
        """The shape of a batch in `shapes`, with the rows that `multiple` adds."""
        return shape._replace(rows=-(-shape.rows // self.multiple) * self.multiple)

    def training_batch(self, seed: int, step: int) -> Batch:
        """The batch of a training step. The seed and the epoch determine the order of the batches.

        The sample weights are `mask * slots / tokens`, where `slots` and `tokens` count the batch's target positions
        with and without padding. The mean loss over all slots is therefore the mean over the tokens, on any number of
        replicas.

        Args:
            seed: seed of the order.
            step: index of the step, from 0.
        """
        inputs, labels = self._training_rows(seed, step)
        mask = labels != PAD_ID
        return inputs, labels, mask * np.float32(mask.size / np.count_nonzero(mask))

    @abc.abstractmethod
    def _training_rows(self, seed: int, step: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs and labels of a training step."""

    def position(self, step: int) -> list[int]:
        """What a checkpoint after `step` steps must contain so that `resume` can continue there."""
        return []

    def resume(self, position: list[int]) -> None:  # noqa: B027
        """Continues from a checkpoint, which contains the result of `position`."""

    def sources(self, step: int) -> str | None:
        """Describes the pairs of each of several corpora that the first steps used; `None` for one corpus."""
        return None

    def close(self) -> None:  # noqa: B027
        """Stops processes that make batches."""


class CorpusBatches(Batches):
    """The batches of a corpus whose pairs are the same in each epoch, with random access.

    Attributes and methods are those of `Batches`.

    Args:
        source: the source sentences.
        target: the target sentences.
        config: a `BatchConfig`.
        multiple: see `Batches`.

    Raises:
        ValueError: if the longest sentence does not fit into a batch.
    """

    inputs = ("source", "target")

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        super().__init__(config, max(source.lengths.max(), target.lengths.max()), multiple)
        self.source, self.target = source, target
        self.tokens = int(target.lengths.sum(dtype="int64"))
        self._last_order: tuple[Any, Any] = (None, None)

    @abc.abstractmethod
    def _order(self, generator: np.random.Generator | None) -> Any:
        """The random order of an epoch; a fixed order without a generator."""

    @abc.abstractmethod
    def _laid_out(self, order: Any, number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs and labels of batch `number` of an epoch in this order."""

    def _training_rows(self, seed, step):
        epoch, number = divmod(step, self.steps)
        known, order = self._last_order
        if known != (seed, epoch):  # With millions of pairs an order is slow to compute.
            order = self._order(np.random.default_rng((seed, epoch)))
            self._last_order = (seed, epoch), order
        return self._laid_out(order, number)

    def validation_batch(self, number: int) -> Batch:
        """A validation batch by its index. The sample weights are 1 for tokens and 0 for padding."""
        inputs, labels = self._laid_out(self._fixed_order, number)
        return inputs, labels, (labels != PAD_ID).astype("float32")

    @functools.cached_property
    def _fixed_order(self):
        return self._order(None)


class BucketedBatches(CorpusBatches):
    """Batches with one pair per row. The rows of a batch have similar lengths."""

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
        rows, *lengths = self.filled(self.shapes[bucket])
        source, target = (
            laid_out(side, pairs[first:last], np.ones(last - first, "int32"), (rows, length))
            for side, length in zip((self.source, self.target), lengths, strict=True)
        )
        return {"source": source.ids, "target": target.shifted()}, target.ids


class PackedBatches(CorpusBatches):
    """Batches with several pairs per row and one shape. Their inputs include the segments that `Transformer` takes."""

    inputs = PACKED_INPUTS

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        super().__init__(source, target, config, multiple)
        shape = packed_shape(source.lengths, target.lengths, config.tokens_per_batch)
        self.shapes = [shape]
        self._packing = Packing(source.lengths, target.lengths, (shape.source, shape.target))
        self.steps_each = [-(-self._packing.num_rows // shape.rows)]

    def _order(self, generator):
        return self._packing.order(generator)

    def _laid_out(self, order, number):
        (shape,) = self.shapes
        return PackedPairs(self.source, self.target, self._packing, order).batch(number, shape.rows, self.filled(shape))


def make_batches(source: TokenSide, target: TokenSide, config, multiple: int = 1) -> CorpusBatches:
    """`PackedBatches`, or `BucketedBatches` if `config.num_buckets` is set; see `CorpusBatches`."""
    kind = PackedBatches if config.num_buckets is None else BucketedBatches
    return kind(source, target, config, multiple)


def bucket_lengths(histogram: np.ndarray, num_buckets: int) -> list[int]:
    """The bucket lengths with the least padding, found by dynamic programming.

    Args:
        histogram: number of pairs of each length, `(longest + 1,)`.
        num_buckets: maximum number of lengths.

    Returns:
        The lengths in ascending order.
    """
    present = np.flatnonzero(histogram)
    below = np.concatenate([[0], np.cumsum(histogram[present])])
    # cost[j]: least padded size of the pairs up to length present[j - 1]. cuts[k][j]: start of its last bucket.
    cost = np.concatenate([[0.0], np.full(len(present), np.inf)])
    cuts = []
    for _ in range(min(num_buckets, len(present))):
        total = cost[:, None] + (below[None, :] - below[:, None]) * np.concatenate([[0], present])[None, :]
        total[np.tril_indices(len(cost))] = np.inf
        total[0, 0] = 0.0
        cuts.append(total.argmin(axis=0))
        cost = total.min(axis=0)
    lengths, end = [], len(present)
    for cut in reversed(cuts):
        if end == 0:
            break
        lengths.append(int(present[end - 1]))
        end = int(cut[end])
    return lengths[::-1]
