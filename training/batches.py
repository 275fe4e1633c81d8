"""The batches of a corpus: what is put into a row, in which shapes, and how much of them is padding. NumPy alone."""

import abc
import functools
from typing import Any

import numpy as np

from keras_transformer.tokenization import PAD_ID
from keras_transformer.training.buckets import Buckets
from keras_transformer.training.packing import Packing
from keras_transformer.training.rows import TokenSide, laid_out

#: Rows of several pairs are at least so long: shorter ones would leave more places empty.
_SHORTEST_ROW = 64

#: The inputs by their names, the labels and the sample weights, each `(rows, length)`.
Batch = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


class Batches(abc.ABC):
    """The batches of every epoch, any of which can be made without those before it.

    Args:
        source: the sentences of one side.
        target: their translations.
        config: a `BatchConfig`.
        multiple: rows without weight fill each batch up to a multiple of this, the number of parts that are
            computed apart. So a batch holds the same pairs on any number of devices.

    Attributes:
        inputs: names of the inputs.
        shapes: rows, unfilled, and lengths of the batches, as plain data.
        steps_each: batches of each shape in a pass over the pairs.
        steps: batches of a pass.
        tokens: real target tokens of a pass.

    Raises:
        ValueError: if a batch has no room for the longest sentence.
    """

    inputs: tuple[str, ...] = ("source", "target")
    shapes: dict[str, list[int]]
    steps_each: list[int]

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        self.source, self.target, self.multiple = source, target, multiple
        self.tokens = int(target.lengths.sum(dtype="int64"))
        self.longest = int(max(source.lengths.max(), target.lengths.max()))
        if self.longest > config.tokens_per_batch:
            raise ValueError(
                f"`tokens_per_batch` must be at least {self.longest}, the longest sentence. "
                f"Received: tokens_per_batch={config.tokens_per_batch}"
            )

    @property
    def steps(self) -> int:
        return sum(self.steps_each)

    @property
    @abc.abstractmethod
    def padding(self) -> float:
        """Share of the target's places, without the rows that fill up to a multiple."""

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

    def _order_of_epoch(self, seed, epoch):
        """Kept until another epoch is asked for: with millions of pairs it takes a moment."""
        known, order = getattr(self, "_last_order", (None, None))
        if known != (seed, epoch):
            order = self._order(np.random.default_rng((seed, epoch)))
            self._last_order = (seed, epoch), order
        return order

    @property
    def static_shape(self) -> tuple[int | None, int | None]:
        """Rows and length of every batch; `None` where there are several shapes."""
        if len(self.shapes["lengths"]) > 1:
            return None, None
        return self.filled(self.shapes["rows"][0]), self.shapes["lengths"][0]

    def filled(self, rows: int) -> int:
        """Rows of a batch with those that fill it up.

        Args:
            rows: those that hold pairs.
        """
        return -(-rows // self.multiple) * self.multiple


class BucketedBatches(Batches):
    """A pair a row; the rows of a batch have about one length.

    Args, attributes and methods are those of `Batches`.
    """

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        super().__init__(source, target, config, multiple)
        longer = np.maximum(source.lengths, target.lengths)
        self._buckets = Buckets.fit(np.bincount(longer), config.num_buckets, config.tokens_per_batch)
        bucket = np.searchsorted(self._buckets.lengths, longer).astype("uint16")
        self._pairs = np.argsort(bucket, kind="stable").astype("int32")
        self._bounds = np.cumsum([0, *np.bincount(bucket, minlength=len(self._buckets.lengths))])
        # Of each batch: its bucket, its first pair, and the pair to stop before.
        self._batches = [
            (i, first, min(first + rows, end))
            for i, (start, end, rows) in enumerate(
                zip(self._bounds[:-1], self._bounds[1:], self._buckets.rows, strict=True)
            )
            for first in range(start, end, rows)
        ]
        self.steps_each = np.bincount([bucket for bucket, _, _ in self._batches]).tolist()
        self.shapes = {"lengths": list(self._buckets.lengths), "rows": list(self._buckets.rows)}

    @property
    def padding(self) -> float:
        return 1 - self.tokens / sum(self._buckets.rows[i] * self._buckets.lengths[i] for i, _, _ in self._batches)

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
        shape = self.filled(self._buckets.rows[bucket]), self._buckets.lengths[bucket]
        chosen, segments = pairs[first:last], np.ones(last - first, "int32")
        source, target = (laid_out(side, chosen, segments, shape) for side in (self.source, self.target))
        return {"source": source.ids, "target": target.shifted()}, target.ids


class PackedBatches(Batches):
    """Several pairs a row, in one shape; the batches bring the segments that `Transformer` takes.

    Args, attributes and methods are those of `Batches`.
    """

    inputs = ("source", "target", "source_segments", "target_segments")

    def __init__(self, source: TokenSide, target: TokenSide, config, multiple: int = 1):
        super().__init__(source, target, config, multiple)
        self._rows = config.tokens_per_batch // min(max(self.longest, _SHORTEST_ROW), config.tokens_per_batch)
        self._length = config.tokens_per_batch // self._rows
        self._packing = Packing(source.lengths, target.lengths, self._length)
        self.steps_each = [-(-self._packing.num_rows // self._rows)]
        self.shapes = {"lengths": [self._length], "rows": [self._rows]}

    @property
    def padding(self) -> float:
        return 1 - self.tokens / (self.steps * self._rows * self._length)

    def _order(self, generator):
        return self._packing.order(generator)

    def _laid_out(self, order, number):
        pairs, segments = self._packing.pairs_of(order, number * self._rows, (number + 1) * self._rows)
        shape = self.filled(self._rows), self._length
        source, target = (laid_out(side, pairs, segments, shape) for side in (self.source, self.target))
        inputs = {"source": source.ids, "target": target.shifted()}
        return inputs | {"source_segments": source.segments, "target_segments": target.segments}, target.ids


def make_batches(source: TokenSide, target: TokenSide, config, multiple: int = 1) -> Batches:
    """`PackedBatches`, or with a number of buckets `BucketedBatches`; see `Batches`."""
    kind = PackedBatches if config.num_buckets is None else BucketedBatches
    return kind(source, target, config, multiple)
