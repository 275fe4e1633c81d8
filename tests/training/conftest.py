"""Fixtures: pairs of token ids with given lengths."""

import numpy as np
import pytest

from keras_transformer.training.data.rows import TokenSide


@pytest.fixture(scope="session")
def sides_of():
    """Makes pairs with given lengths. The first id identifies the pair; each side ends with 3."""

    def sides_of(lengths):
        return tuple(
            TokenSide(np.concatenate([[10 + i] * (size - 1) + [3] for i, size in enumerate(sizes)]), sizes)
            for sizes in np.array(lengths, "int32").T
        )

    return sides_of


@pytest.fixture(scope="session")
def random_lengths():
    """Random lengths of both sides, 2 to 20."""
    rng = np.random.default_rng(5)
    source = rng.integers(2, 20, 83)
    return np.stack([source, np.clip(source + rng.integers(-3, 4, 83), 2, 20)], axis=1)
