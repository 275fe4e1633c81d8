import itertools

import numpy as np
import pytest

from keras_transformer.training.data.batches import bucket_lengths


def padded_size(histogram, lengths):
    """Positions of all pairs when each is padded to the next of these lengths."""
    return sum(count * min(b for b in lengths if b >= n) for n, count in enumerate(histogram) if count)


def least(histogram, num_buckets):
    """The minimum of `padded_size`, by brute force."""
    present = [int(n) for n in np.flatnonzero(histogram)]
    sizes = range(1, min(num_buckets, len(present)) + 1)
    choices = (c for size in sizes for c in itertools.combinations(present, size) if c[-1] == present[-1])
    return min(padded_size(histogram, choice) for choice in choices)


@pytest.mark.parametrize("num_buckets", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_buckets_have_the_least_padding(seed, num_buckets):
    rng = np.random.default_rng(seed)
    histogram = np.concatenate([[0, 0], rng.integers(0, 9, 8) * (rng.random(8) < 0.8), [1]])
    lengths = bucket_lengths(histogram, num_buckets)
    assert len(lengths) <= num_buckets
    assert lengths == sorted(set(lengths))
    assert lengths[-1] == len(histogram) - 1
    assert padded_size(histogram, lengths) == least(histogram, num_buckets)


def test_one_length_is_one_bucket():
    assert bucket_lengths(np.array([0, 0, 0, 9]), 4) == [3]
