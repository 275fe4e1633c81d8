"""The interface of a backend's devices."""

import abc
import contextlib
import re
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras

from keras_transformer.training.data.batches import Batches


class Devices(abc.ABC):
    """The devices of one process, or of several workers that run the same command.

    Attributes:
        count: number of replicas, over all workers.
        worker: index of this process. Worker 0 is the chief, the only one that writes files.
        workers: number of processes.
    """

    count: int
    worker: int = 0
    workers: int = 1

    @abc.abstractmethod
    def scope(self) -> AbstractContextManager:
        """The context in which models must be created."""

    def check_recipe(self, recipe) -> None:
        """Checks that these devices support a `RecipeConfig`, before any work starts.

        Raises:
            ValueError: if they do not.
        """
        self.jit_compile(recipe.xla)

    @abc.abstractmethod
    def jit_compile(self, xla: bool | None) -> bool:
        """Whether Keras should compile with XLA, for a value of `RecipeConfig.xla`.

        Raises:
            ValueError: if these devices do not support the value.
        """

    @abc.abstractmethod
    def training_data(self, batches: Batches, seed: int, first_step: int) -> Any:
        """An infinite dataset of training batches, for `fit`."""

    @abc.abstractmethod
    def validation_data(self, batches: Batches) -> dict[str, Any]:
        """The arguments of `fit` for one pass over the validation batches."""

    @abc.abstractmethod
    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        """Makes each training step of `fit` accumulate gradients over micro-batches.

        The result is the gradient of the batch: all micro-batches have the same size, and the batch's sample weights
        are normalized over the batch, so the mean of the micro-batch gradients is the batch gradient. The gradient
        accumulation of Keras optimizers is not used: it skips a micro-batch with an overflow, so that later sums mix
        micro-batches of two batches, and a checkpoint may contain a partial sum.

        Args:
            model: a compiled model. Its optimizer counts batches, not micro-batches.
            accumulation_steps: number of micro-batches. It must divide the rows of every batch on each device.
        """

    def offset_replica_seeds(self, model: keras.Model) -> None:  # noqa: B027
        """Gives each replica its own random numbers, on backends where replicas share the model's seeds."""

    @abc.abstractmethod
    def sync_variables(self, model: keras.Model) -> None:
        """Copies the current state of `fit` into the model's variables."""

    def any_worker(self, flag: bool) -> bool:
        """Whether the flag is true on any worker. All workers must call this."""
        return flag

    def all_equal(self, number: int) -> bool:
        """Whether the number is the same on every worker. All workers must call this."""
        return True

    def detect_worker_failure(self) -> AbstractContextManager:
        """A context that raises `WorkerLost` when another worker stops."""
        return contextlib.nullcontext()

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The model name of the first device, such as `NVIDIA H200`."""

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.worker == 0


def count_logical_cpus(names: Sequence[str]) -> int:
    """The number of logical CPU devices to create for these names; 0 if they do not name several."""
    cpus = {int(found[1]) for name in names if (found := re.fullmatch(r"CPU:(\d+)", name.upper()))}
    return 1 + max(cpus) if len(cpus) > 1 else 0


def require_known(names: Sequence[str], known: Collection[str]) -> None:
    """Raises a `ValueError` if a device does not exist or is named twice, ignoring case."""
    known, folded = sorted(name.upper() for name in known), [name.upper() for name in names]
    unknown = [name for name, upper in zip(names, folded, strict=True) if upper not in known]
    if unknown:
        raise ValueError(f"`devices` must be among {known}. Received: devices={','.join(unknown)}")
    if len(set(folded)) < len(folded):
        raise ValueError(f"`devices` must not repeat a device. Received: devices={','.join(names)}")
