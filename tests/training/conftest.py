"""Fixtures of the training's tests: pairs of ids of given lengths."""

import numpy as np
import pytest

from keras_transformer.training.data.rows import TokenSide


@pytest.fixture(scope="session")
def sides_of():
    """Pairs with these lengths; the first id tells one pair from another, 3 ends each side."""

    def sides_of(lengths):
        return tuple(
            TokenSide(np.concatenate([[10 + i] * (size - 1) + [3] for i, size in enumerate(sizes)]), sizes)
            for sizes in np.array(lengths, "int32").T
        )

    return sides_of


@pytest.fixture(scope="session")
def random_lengths():
    """Lengths of both sides, 2 to 20."""
    rng = np.random.default_rng(5)
    source = rng.integers(2, 20, 83)
    return np.stack([source, np.clip(source + rng.integers(-3, 4, 83), 2, 20)], axis=1)
