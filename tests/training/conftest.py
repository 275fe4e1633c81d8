"""Fixtures of the training's tests: pairs of ids of given lengths."""

import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture(scope="session")
def pairs_of():
    """A dataset of pairs with these lengths; the first id tells one pair from another, 3 ends each side."""

    def pairs_of(lengths):
        sides = [
            [np.array([10 + i] * (size[side] - 1) + [3], "int32") for i, size in enumerate(lengths)] for side in (0, 1)
        ]

        def generate():
            yield from zip(*sides, strict=True)

        spec = tf.TensorSpec([None], tf.int32)
        return tf.data.Dataset.from_generator(generate, output_signature=(spec, spec))

    return pairs_of


@pytest.fixture(scope="session")
def random_lengths():
    """Lengths of both sides, 2 to 20."""
    rng = np.random.default_rng(5)
    source = rng.integers(2, 20, 83)
    return np.stack([source, np.clip(source + rng.integers(-3, 4, 83), 2, 20)], axis=1)
