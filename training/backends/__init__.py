"""What training asks of Keras's backend: devices, the feeding of batches, steps in several parts.

`backend()` is a module of the backend's name, with

- `make_devices(names) -> Devices`;
- `jit_compile(xla, count)`: what `RecipeConfig.xla` means on so many devices;
- `training_data(batches, seed, first_step)` and `validation_data(batches)`: what `fit` takes;
- `accumulate(model, parts)`;
- `reattach(model)`: within `fit`, gives the model's variables the values that the training has come to.
"""

import importlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import keras

_BACKENDS = ("tensorflow", "jax")


class Devices(NamedTuple):
    """What a training runs on."""

    count: int
    scope: Callable[[], AbstractContextManager]  # models must be made within it


def backend():
    """The module of Keras's backend.

    Raises:
        ValueError: if it is none that training runs on.
    """
    name = keras.backend.backend()
    if name not in _BACKENDS:
        raise ValueError(f"Training runs on the Keras backends {', '.join(_BACKENDS)}. Received: KERAS_BACKEND={name}")
    return importlib.import_module(f"keras_transformer.training.backends.{name}")


def require_known(names: Sequence[str], known: Collection[str]) -> None:
    """Checks names of devices, in which capitals and small letters are one.

    Args:
        names: what was asked for.
        known: what there is.

    Raises:
        ValueError: if a device does not exist or is named twice.
    """
    known, folded = sorted(name.upper() for name in known), [name.upper() for name in names]
    unknown = [name for name, upper in zip(names, folded, strict=True) if upper not in known]
    if unknown:
        raise ValueError(f"`devices` must be among {known}. Received: {', '.join(unknown)}")
    if len(set(folded)) < len(folded):
        raise ValueError(f"`devices` must be different ones. Received: {','.join(names)}")
