"""What every backend's devices must do."""

import abc
import contextlib
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras

from keras_transformer.training.data.batches import Batches


class Devices(abc.ABC):
    """The devices of one process, or of several workers that run the same command.

    Attributes:
        count: replicas, those of all workers together.
        worker: number of this process; the first, 0, is the chief, who alone writes.
        workers: how many processes.
    """

    count: int
    worker: int = 0
    workers: int = 1

    @abc.abstractmethod
    def scope(self) -> AbstractContextManager:
        """Within it models must be made."""

    def require_possible(self, recipe) -> None:
        """Checks a `RecipeConfig` before anything is done.

        Raises:
            ValueError: if these devices cannot follow it.
        """
        self.jit_compile(recipe.xla)

    @abc.abstractmethod
    def jit_compile(self, xla: bool | None) -> bool:
        """What `RecipeConfig.xla` means on these.

        Raises:
            ValueError: if that cannot be.
        """

    @abc.abstractmethod
    def training_data(self, batches: Batches, seed: int, first_step: int) -> Any:
        """What `fit` takes: batches without end."""

    @abc.abstractmethod
    def validation_data(self, batches: Batches) -> dict[str, Any]:
        """The arguments of `fit` for batches of one pass."""

    @abc.abstractmethod
    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        """Lets each training step of `fit` accumulate the gradient over several passes.

        The gradient is that of the whole batch: all passes have the same size, so the mean of their means, each
        over all slots with the batch's sample weights, is the batch's mean. Keras accumulates in the optimizer, where
        a pass whose gradient overflows shifts the groups, and a checkpoint may hold a partial sum.

        Args:
            model: a compiled model, whose optimizer steps as often as before.
            accumulation_steps: number of passes. Each device's rows of every batch must be a multiple of it.
        """

    def offset_replica_seeds(self, model: keras.Model) -> None:  # noqa: B027
        """Has each replica draw its own random numbers, where a model's seeds are every replica's."""

    @abc.abstractmethod
    def sync_variables(self, model: keras.Model) -> None:
        """Within `fit`: gives the model's variables the values that the training has come to."""

    def any_worker(self, flag: bool) -> bool:
        """Whether the flag is up on any worker; all must ask."""
        return flag

    def all_equal(self, number: int) -> bool:
        """Whether the number is the same on every worker; all must ask."""
        return True

    def detect_worker_failure(self) -> AbstractContextManager:
        """Within it `WorkerLost` is raised when another worker ends."""
        return contextlib.nullcontext()

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The name of the first device's make."""

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""
        return self.worker == 0


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
