"""Seeds of the parts of a layer, and of copies of a layer.

Two parts with one seed would start with equal weights and drop equal positions. The functions derive a seed for each
part, and for each copy, from the explicit seeds that the user gave. A seed that was not given stays `None`, and Keras
draws it from Python's `random` module when the part is made.
"""

import numbers
from typing import Any

import keras
import numpy as np


def mix_seed(seed, index):
    """Derives a seed from a seed and an index.

    Args:
        seed: int, or `None`.
        index: int that is not negative, such as the number of a part or of a copy.

    Returns:
        Int in [0, 2^31), which every backend accepts; `None` if `seed` is.

    Raises:
        ValueError: if `seed` is neither an integer nor `None`.

    Example:

    >>> mix_seed(7, 0), mix_seed(7, 1), mix_seed(8, 0)
    (600562731, 1809491585, 1628660405)

    Reference:
        O'Neill 2015, "Developing a seed_seq Alternative", as `numpy.random.SeedSequence` with a spawn key.
    """
    if seed is None:
        return None
    if not isinstance(seed, numbers.Integral):
        raise ValueError(f"`seed` must be an integer or None. Received: seed={seed!r}")
    return int(np.random.SeedSequence(int(seed) % 2**64, spawn_key=(index,)).generate_state(1)[0] >> 1)


def fold_seed(config, index):
    """Copies a serialized object with every explicit seed replaced by `mix_seed` of that seed and the index.

    A seed is an int with the key `seed`, or with a key that ends in `_seed`, at any depth: of a layer, a sub-layer, an
    initializer or a `keras.random.SeedGenerator`.

    Args:
        config: nested dictionaries, lists and tuples.
        index: number of the copy.

    Returns:
        The copy.

    Example:

    >>> fold_seed({"seed": 7, "initializer": {"config": {"seed": None}}}, 1)
    {'seed': 1809491585, 'initializer': {'config': {'seed': None}}}
    """

    def fold(part):
        return {key: mix_seed(value, index) if _is_seed(key, value) else value for key, value in part.items()}

    return rewritten(config, fold)


def rewritten(config, change) -> Any:
    """Copies nested dictionaries, lists and tuples. `change` of each dictionary replaces it, the innermost first."""
    if isinstance(config, dict):
        return change({key: rewritten(value, change) for key, value in config.items()})
    if isinstance(config, (list, tuple)):
        parts = [rewritten(value, change) for value in config]
        return tuple(parts) if isinstance(config, tuple) else parts
    return config


def seeded_initializer(initializer, seed):
    """The initializer with this seed, unless it has one."""
    if seed is None:
        return initializer
    made: Any = keras.initializers.get(initializer)
    config = made.get_config() if isinstance(made, keras.initializers.Initializer) else {}
    return type(made).from_config({**config, "seed": seed}) if config.get("seed", seed) is None else initializer


def part_initializer(initializer, index, seed):
    """The initializer of one part of a layer.

    Args:
        initializer: a name, configuration, `keras.initializers.Initializer` or function, which the user gave for all
            parts.
        index: number of the part.
        seed: seed of the layer, or `None`.

    Returns:
        An initializer of its own for the part. Its seed is `mix_seed` of the initializer's seed, or else of the
        layer's. A name without a seed, and a function, are returned as they are.
    """
    given: Any = initializer if isinstance(initializer, str | None) else keras.initializers.get(initializer)
    if isinstance(given, keras.initializers.Initializer):
        given = type(given).from_config(fold_seed(given.get_config(), index))
    return seeded_initializer(given, mix_seed(seed, index))


def _is_seed(key, value):
    is_named = isinstance(key, str) and (key == "seed" or key.endswith("_seed"))
    return is_named and isinstance(value, numbers.Integral) and not isinstance(value, bool)
