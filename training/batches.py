"""The batches of a corpus: what is put into a row, in which shapes, and how much of them is padding."""

import functools
import itertools

import numpy as np
import tensorflow as tf

from keras_transformer.tokenization import PAD_ID
from keras_transformer.training.packing import Packing, TokenSide
from keras_transformer.training.pipeline import Buckets, Statistics, reweighted, training_batches, validation_batches

#: Rows of several pairs are at least so long: shorter ones would leave more places empty.
_SHORTEST_ROW = 64


class BucketedBatches:
    """A pair a row; the rows of a batch have about one length.

    Args:
        pairs: dataset of `(source, target)` int32 vectors with the end id.
        statistics: of the pairs.
        config: a `DataConfig`.
        multiple: rows without weight fill each batch up to a multiple of this, the number of parts that are
            computed apart. So a batch holds the same pairs on any number of devices.

    Attributes:
        steps: batches of a pass over the pairs.
        shapes: rows and lengths of the batches, as plain data.
        padding: share of the target's places.
    """

    def __init__(self, pairs: tf.data.Dataset, statistics: Statistics, config, multiple: int = 1):
        buckets = Buckets.fit(statistics.histogram, config.num_buckets, config.tokens_per_batch)
        self.steps = buckets.steps(statistics.histogram)
        self.shapes = buckets.record()
        self.padding = 1 - statistics.target_tokens / buckets.slots(statistics.histogram)
        self._training = functools.partial(training_batches, pairs, buckets, multiple=multiple)
        self._validation = functools.partial(validation_batches, pairs, buckets, multiple)

    def training(self, seed: int, first_epoch: int = 0) -> tf.data.Dataset:
        """Batches without end; see `training_batches`."""
        return self._training(seed, first_epoch)

    def validation(self) -> tf.data.Dataset:
        """Batches of one pass; see `validation_batches`."""
        return self._validation()


class PackedBatches:
    """Several pairs a row, in one shape; the batches bring the segments that `Transformer` takes.

    Args, attributes and methods are those of `BucketedBatches`.
    """

    def __init__(self, pairs: tf.data.Dataset, statistics: Statistics, config, multiple: int = 1):
        longest = int(np.flatnonzero(statistics.histogram)[-1])
        length = min(max(longest, _SHORTEST_ROW), config.tokens_per_batch)
        self._packing = Packing(*_sides(pairs), length, config.tokens_per_batch // length, multiple)
        self.steps = self._packing.steps
        self.shapes = {"lengths": [length], "rows": [self._packing.rows]}
        self.padding = 1 - statistics.target_tokens / (self.steps * self._packing.rows * length)

    def training(self, seed: int, first_epoch: int = 0) -> tf.data.Dataset:
        """Batches without end, each epoch in an order of its own that the seed decides, weighted as by `reweighted`."""
        batches = self._dataset(lambda: ((seed, epoch) for epoch in itertools.count(first_epoch)))
        return batches.map(reweighted, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def validation(self) -> tf.data.Dataset:
        """Batches of one pass; the weights are 1 for real tokens, so that metrics are means over the corpus."""
        return self._dataset(lambda: [None]).cache().prefetch(tf.data.AUTOTUNE)

    def _dataset(self, seeds):
        def batches():
            return itertools.chain.from_iterable(map(self._packing.epoch, seeds()))

        ids = tf.TensorSpec(self._packing.shape, tf.int32)
        inputs = dict.fromkeys(("source", "target", "source_segments", "target_segments"), ids)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=(inputs, ids))
        return dataset.map(lambda inputs, labels: (inputs, labels, tf.cast(labels != PAD_ID, tf.float32)))


#: By the values of `DataConfig.batching`.
BATCHINGS = {"buckets": BucketedBatches, "packed": PackedBatches}


def _sides(pairs):
    """The pairs as two arrays of ids."""
    batches = [[(side.flat_values, side.row_lengths()) for side in batch] for batch in pairs.ragged_batch(4096)]
    return [
        TokenSide(*(np.concatenate(parts) for parts in zip(*side, strict=True))) for side in zip(*batches, strict=True)
    ]
