"""Pairs of ids -> batches for `fit`: filtered, shuffled, bucketed by length, weighted."""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_transformer.tokenization import BOS_ID, PAD_ID

_SHUFFLE_BUFFER = 200_000


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What one pass over the pairs found."""

    pairs: int
    empty: int
    too_long: int
    ratio: int
    alike: int  # kept pairs whose sides are the same subwords: copied, or one file given twice
    histogram: np.ndarray  # (max_length + 1,): kept pairs by the longer side's length
    target_tokens: int  # of the kept pairs, the end counted

    @property
    def kept(self) -> int:
        """Pairs that are used."""
        return int(self.histogram.sum())

    def __str__(self):
        return (
            f"{self.kept:,} of {self.pairs:,} pairs used; left out: {self.empty:,} with an empty side, "
            f"{self.too_long:,} too long, {self.ratio:,} of too unlike lengths"
            + (f"; used, but alike on both sides: {self.alike:,}" if self.alike else "")
        )


def filtered(pairs: tf.data.Dataset, config) -> tuple[tf.data.Dataset, Statistics]:
    """Leaves out what cannot be learnt from, and counts it. The pairs stay in memory from then on.

    Args:
        pairs: dataset of `(source, target)` int32 vectors with the end id.
        config: a `DataConfig`.

    Returns:
        The dataset without empty, too long and too unlike pairs, and the `Statistics`.

    Raises:
        ValueError: if nothing is left.
    """
    pairs = pairs.cache()
    batches = pairs.map(lambda s, t: tf.stack([tf.size(s), tf.size(t), _is_alike(s, t)])).batch(4096)
    found = np.concatenate([np.zeros((0, 3), "int32"), *batches.as_numpy_iterator()])
    lengths, alike = found[:, :2], found[:, 2]
    empty, too_long, ratio = (fault.numpy() for fault in _faults(lengths, config))
    is_used = ~(empty | too_long | ratio)
    kept = lengths[is_used]
    histogram = np.bincount(kept.max(axis=1, initial=0), minlength=config.max_length + 1)
    statistics = Statistics(
        pairs=len(lengths),
        empty=int(empty.sum()),
        too_long=int((too_long & ~empty).sum()),
        ratio=int((ratio & ~empty & ~too_long).sum()),
        alike=int(alike[is_used].sum()),
        histogram=histogram,
        target_tokens=int(kept[:, 1].sum()),
    )
    if not statistics.kept:
        raise ValueError(f"No pairs are left to use: {statistics}")

    def is_kept(source, target):
        faults = _faults(tf.stack([tf.size(source), tf.size(target)])[None], config)
        return ~tf.reduce_any(tf.stack(faults))

    return pairs.filter(is_kept), statistics


def _is_alike(source, target):
    shorter = tf.minimum(tf.size(source), tf.size(target))
    is_alike = (tf.size(source) == tf.size(target)) & tf.reduce_all(source[:shorter] == target[:shorter])
    return tf.cast(is_alike, tf.int32)


def _faults(lengths, config):
    """For pairs of lengths `(pairs, 2)`: which have an empty side, are too long, of too unlike lengths."""
    shorter, longer = tf.reduce_min(lengths, 1), tf.reduce_max(lengths, 1)
    ratio = tf.cast(longer, tf.float32) / tf.cast(shorter, tf.float32)
    is_unlike = (ratio > config.max_length_ratio) & (longer - shorter > 10)
    return shorter < 2, longer > config.max_length, is_unlike


@dataclasses.dataclass(frozen=True)
class Buckets:
    """The shapes of the batches: `rows[i]` pairs of at most `lengths[i]` subwords a side."""

    lengths: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def fit(cls, histogram: np.ndarray, num_buckets: int, tokens_per_batch: int):
        """The lengths that pad a corpus least, found by dynamic programming.

        Args:
            histogram: pairs by length, `(longest + 1,)`.
            num_buckets: how many lengths at most.
            tokens_per_batch: rows x length of a batch at most; a batch has at least a row.

        Returns:
            `Buckets`.
        """
        lengths = _least_padding(histogram, num_buckets)
        return cls(lengths, tuple(max(tokens_per_batch // length, 1) for length in lengths))

    def record(self) -> dict[str, list[int]]:
        """The shapes as plain data."""
        return {"lengths": list(self.lengths), "rows": list(self.rows)}

    def steps(self, histogram: np.ndarray) -> int:
        """Batches that a pass over the corpus makes, the filled last ones counted.

        Args:
            histogram: pairs by length, `(longest + 1,)`.
        """
        return sum(self._steps_each(histogram))

    def slots(self, histogram: np.ndarray) -> int:
        """Places for subwords, a side, of the batches of a pass over the corpus.

        Args:
            histogram: pairs by length, `(longest + 1,)`.
        """
        steps = self._steps_each(histogram)
        return sum(n * rows * length for n, rows, length in zip(steps, self.rows, self.lengths, strict=True))

    def _steps_each(self, histogram):
        bounds = np.concatenate([[0], np.asarray(self.lengths) + 1])
        counts = [histogram[low:high].sum() for low, high in zip(bounds[:-1], bounds[1:], strict=True)]
        return [-(-int(count) // rows) for count, rows in zip(counts, self.rows, strict=True)]


def _least_padding(histogram, num_buckets):
    present = np.flatnonzero(histogram)
    below = np.concatenate([[0], np.cumsum(histogram[present])])
    # cost[j]: padded size of the pairs up to present[j - 1], with the buckets so far; cut[k][j]: where the last begins.
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
    return tuple(reversed(lengths))


def training_batches(
    pairs: tf.data.Dataset, buckets: Buckets, seed: int, first_epoch: int = 0, multiple: int = 1
) -> tf.data.Dataset:
    """Batches without end, each epoch in an order of its own that the seed decides.

    The sample weights are those of `reweighted` for the whole batch, so that a loss averaged
    over the batch's slots is the mean over its real tokens on any number of replicas.

    Args:
        pairs: dataset of `(source, target)` int32 vectors with the end id.
        buckets: the shapes.
        seed: of the order.
        first_epoch: the epoch to begin with.
        multiple: rows without weight fill each batch up to a multiple of this, the number of parts that are
            computed apart. So a batch holds the same pairs on any number of devices.

    Returns:
        Dataset of `({"source", "target"}, labels, weights)`, each `(rows, length)`.
    """

    def epoch(number):
        shuffled = pairs.shuffle(_SHUFFLE_BUFFER, seed=tf.cast(seed, tf.int64) * 100_003 + number)
        return _bucketed(shuffled, buckets, multiple)

    epochs = tf.data.Dataset.range(first_epoch, np.iinfo("int64").max)
    return epochs.flat_map(epoch).map(reweighted, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def validation_batches(pairs: tf.data.Dataset, buckets: Buckets, multiple: int = 1) -> tf.data.Dataset:
    """Batches of one pass; the weights are 1 for real tokens, so that metrics are means over the corpus.

    Args:
        pairs: dataset of `(source, target)` int32 vectors with the end id.
        buckets: the shapes.
        multiple: of `training_batches`.

    Returns:
        Dataset of `({"source", "target"}, labels, weights)`, each `(rows, length)`.
    """
    return _bucketed(pairs, buckets, multiple).cache().prefetch(tf.data.AUTOTUNE)


def _bucketed(pairs, buckets, multiple):
    rows_of_length = tf.constant([-(-rows // multiple) * multiple for rows in buckets.rows])
    lengths = tf.constant(buckets.lengths)

    def shifted(source, target):
        return source, tf.concat([[BOS_ID], target[:-1]], 0), target

    def filled(*batch):
        """The batch with rows of padding up to its bucket's size, rounded up."""
        bucket = tf.searchsorted(lengths, tf.shape(batch[0])[1:2])[0]
        missing = rows_of_length[bucket] - tf.shape(batch[0])[0]
        source, target, labels = (tf.pad(x, [[0, missing], [0, 0]], constant_values=PAD_ID) for x in batch)
        return {"source": source, "target": target}, labels, tf.cast(labels != PAD_ID, tf.float32)

    batches = pairs.map(shifted).bucket_by_sequence_length(
        lambda source, target, labels: tf.maximum(tf.size(source), tf.size(labels)),
        bucket_boundaries=[length + 1 for length in buckets.lengths],
        bucket_batch_sizes=[*buckets.rows, 1],
        pad_to_bucket_boundary=True,
    )
    return batches.map(filled, tf.data.AUTOTUNE)


def reweighted(inputs, labels, mask):
    """A batch whose sample weights are `mask * slots / real tokens`.

    Args:
        inputs: of the model.
        labels: int `(rows, length)`.
        mask: float `(rows, length)`, 1 for real tokens.
    """
    return inputs, labels, mask * (tf.cast(tf.size(mask), tf.float32) / tf.reduce_sum(mask))
