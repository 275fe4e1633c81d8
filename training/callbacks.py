"""Callbacks of `fit`: checkpoints, stopping."""

import json
import signal
import time
from collections.abc import Sequence

import keras
import numpy as np

from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.backends.devices import Devices
from keras_transformer.training.checkpoints import CheckpointFiles, TrainingState
from keras_transformer.training.plan import TrainingPlan
from keras_transformer.training.stopping import Diverged, Interrupted, StopRequest


class Callbacks(keras.callbacks.CallbackList):
    """The callbacks of a run, for all its calls of `fit`. The training begins with the first call and ends with `end`.

    The callbacks of this package get the logs of a batch as tensors. The list that `fit` makes of callbacks converts
    the logs to numbers after each batch. This waits until the device has computed the batch, and the device then waits
    for the next one. On JAX, the attribute `model` of a callback also takes time: it copies all variables out of `fit`.
    Here, only callbacks of the user that observe batches get numbers.

    Args:
        callbacks: the callbacks.
        model: the model that they observe.
        given: those of them that are the user's.
    """

    def __init__(
        self,
        callbacks: list[keras.callbacks.Callback],
        model: keras.Model,
        given: Sequence[keras.callbacks.Callback] = (),
    ):
        super().__init__(callbacks, add_history=True, model=model)  # `fit` returns the history.
        self._given = given
        self._has_begun, self._last_logs = False, None

    def on_train_begin(self, logs=None):
        if not self._has_begun:
            super().on_train_begin(logs)
        self._has_begun = True

    def on_train_end(self, logs=None):
        self._last_logs = logs

    def end(self) -> None:
        """Ends the training."""
        if self._has_begun:
            super().on_train_end(self._last_logs)

    def on_train_batch_end(self, batch, logs=None):
        self._call("on_train_batch_end", batch, logs)

    def on_test_batch_end(self, batch, logs=None):
        self._call("on_test_batch_end", batch, logs)

    def _call(self, hook, batch, logs):
        numbers = None
        for callback in self.callbacks:
            if callback in self._given and _observes_batches(callback, hook):
                numbers = numbers or {name: float(value) for name, value in (logs or {}).items()}
                getattr(callback, hook)(batch, logs=numbers)
            else:
                getattr(callback, hook)(batch, logs=logs)


def _observes_batches(callback, hook):
    """Whether a callback has a method of its own for the end of a batch."""
    names = (hook, "on_batch_end") if hook == "on_train_batch_end" else (hook,)
    return any(
        getattr(getattr(callback, name), "__func__", None) is not getattr(keras.callbacks.Callback, name)
        for name in names
    )


class Divergence(keras.callbacks.Callback):
    """Stops a run whose loss is NaN or too large, before a checkpoint saves its weights.

    The loss of a batch is computed from the running mean that Keras keeps over an epoch, assuming that all batches
    have the same number of tokens. It is checked after the next step has been dispatched, so that the device does not
    wait, and before each validation and checkpoint.

    Args:
        files: the checkpoints; the error names the last valid one.
        state: the training state at the start.
        steps_per_epoch: batches in one pass over the data; the error names the batch.
        limit: maximum loss of a batch, in nats per token.
        steps_per_execution: steps between two calls of `on_train_batch_end`.
    """

    def __init__(
        self,
        files: CheckpointFiles,
        state: TrainingState,
        steps_per_epoch: int,
        limit: float,
        steps_per_execution: int = 1,
    ):
        super().__init__()
        self.files = files
        self.step = state.step
        self.steps_per_epoch = steps_per_epoch
        self.limit = limit
        self.steps_per_execution = steps_per_execution
        #: The mean of the epoch after the latest step, if it is not checked yet.
        self.mean = None

    def on_epoch_begin(self, epoch, logs=None):
        self.count, self.sum = 0, 0.0

    def on_train_batch_end(self, batch, logs=None):
        self._check_loss()
        self.mean = logs["loss"]
        self.step += self.steps_per_execution

    def on_test_begin(self, logs=None):
        self._check_loss()

    def _check_loss(self):
        if self.mean is None:
            return
        before, self.count = self.sum, self.count + self.steps_per_execution
        self.sum, self.mean = float(self.mean) * self.count, None
        loss = (self.sum - before) / self.steps_per_execution
        if not loss <= self.limit:
            self.fail(f"The loss is {loss:.4g}")

    def check_before_saving(self) -> None:
        """Checks the latest loss, and the weights after it."""
        self._check_loss()
        if not all(np.isfinite(weight).all() for weight in self.model.get_weights()):
            self.fail("Weights contain NaN or Inf")

    def fail(self, what: str) -> None:
        """Raises the error."""
        epoch, batch = divmod(self.step - 1, self.steps_per_epoch)
        raise Diverged(
            f"{what} at step {self.step}, batch {batch + 1} of epoch {epoch + 1}. {self.files.describe_last()}. "
            "A lower `recipe.peak_learning_rate` or more `recipe.warmup_steps` may help"
        )


class Checkpoints(keras.callbacks.Callback):
    """Writes checkpoints, records validations, and stops the run when patience or time has run out.

    If another callback has stopped the training, a validation follows as at the last step.

    The checkpoint of a validation step is written after the validation and contains its result. A resumed run
    therefore neither loses nor repeats a validation.

    Args:
        directory: the model directory.
        files: the checkpoints.
        state: the training state. No other callback changes it.
        recipe: the `RecipeConfig`.
        validate_every: steps between validations.
        plan: the `TrainingPlan`.
        divergence: checks the loss and the weights before they are saved.
        request: whether a signal has requested a stop.
        devices: the devices of the training. Of several workers, only the chief writes.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        files: CheckpointFiles,
        state: TrainingState,
        recipe,
        validate_every: int,
        plan: TrainingPlan,
        divergence: Divergence,
        request: StopRequest,
        devices: Devices,
    ):
        super().__init__()
        self.history_file = directory.checkpoints / "validations.json"
        self.files = files
        self.state = state
        self.recipe = recipe
        self.validate_every = validate_every
        self.total = plan.total
        self.batches = plan.batches
        self.divergence = divergence
        self.request = request
        self.devices = devices
        self.started = time.monotonic() - self.state.seconds

    @property
    def should_stop(self) -> bool:
        """Whether patience or time has run out."""
        return self.devices.any_worker(self._is_out_of_patience() or self._is_out_of_time())

    def set_model(self, model):
        super().set_model(model)
        self._fitted = model  # On JAX, the attribute `model` copies all variables out of `fit`.

    def on_train_batch_end(self, batch, logs=None):
        self.state.step += self.recipe.steps_per_execution
        stops = ends = False
        # Communication between workers takes time: most steps make only this call.
        is_ended = self._fitted.stop_training or self._is_out_of_time()
        if self.devices.any_worker(self._stop_requested() or is_ended):
            stops = self.devices.any_worker(self._stop_requested())
            ends = self.devices.any_worker(is_ended)
            self.model.stop_training = ends
        step = self.state.step
        if ends or step % self.validate_every == 0 or step == self.total:
            return  # `on_epoch_end` saves after the validation.
        if step % self.files.every == 0 or stops:
            self._save()

    def on_epoch_end(self, epoch, logs=None):
        losses = {"loss": float(logs["val_loss"]), "training_loss": float(logs["loss"])}
        found = {"step": self.state.step, **losses, "time": time.time()}
        if "val_bleu" in logs:
            found["bleu"] = float(logs["val_bleu"])
        self.state.validations.append(found)
        if self.devices.is_chief:
            with atomic_write(self.history_file) as temporary:  # For users; a resumed run reads the checkpoint.
                temporary.write_text(json.dumps(self.state.validations, indent=1))
        self._save()
        self.model.stop_training = self.devices.any_worker(self.model.stop_training) or self.should_stop

    def _is_out_of_patience(self):
        best = self.state.best_step(self.recipe.best_by)
        if self.recipe.patience is None or best is None:
            return False
        return sum(v["step"] > best for v in self.state.validations) >= self.recipe.patience

    def _is_out_of_time(self):
        return time.monotonic() - self.started >= self.recipe.seconds

    def _stop_requested(self):
        return self.request.number is not None

    def _save(self):
        self.devices.sync_variables(self.model)
        self.divergence.check_before_saving()
        self.state.seconds = time.monotonic() - self.started
        self.state.position = self.batches.position(self.state.step)
        if self.devices.is_chief:
            self.files.write(self.model, self.state)
        if self.devices.any_worker(self._stop_requested()):
            raise Interrupted(self.request.number or signal.SIGTERM, self.files.describe_last())
