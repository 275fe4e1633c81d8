"""TensorBoard scalars of a run."""

import os
import time
from pathlib import Path

import keras
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from keras_transformer.optimizers import inner_adam
from keras_transformer.storage.atomic_files import naming
from keras_transformer.training.backends.devices import Devices
from keras_transformer.training.flops import StepCost


class Scalars(keras.callbacks.Callback):
    """Writes TensorBoard scalars: training values to `train`, validation values to `validation`.

    Training loss, perplexity and token accuracy are means since the last validation. The gradient norm is that of the
    last update. A resumed run continues from the step of its checkpoint.

    Args:
        folder: folder of the logs.
        step: the step at the start.
        every: updates between values.
        cost: average cost of a step.
        devices: the devices of the training.
        steps_per_execution: steps between two calls of `on_train_batch_end`.
    """

    def __init__(
        self, folder: Path, step: int, every: int, cost: StepCost, devices: Devices, steps_per_execution: int = 1
    ):
        super().__init__()
        self.training, self.validation = (EventFile(folder / name) for name in ("train", "validation"))
        self.step = step
        self.every = every
        self.cost = cost
        self.devices = devices
        self.steps_per_execution = steps_per_execution

    def on_epoch_begin(self, epoch, logs=None):
        self.since = self.step, time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.step += self.steps_per_execution
        if self.step % self.every < self.steps_per_execution:
            self._write_training(logs)

    def on_epoch_end(self, epoch, logs=None):
        values = {name[4:]: value for name, value in logs.items() if name.startswith("val_")}
        self.validation.write(self.step, values)

    def _write_training(self, logs):
        (step, started), now = self.since, time.perf_counter()
        self.since = self.step, now
        self.devices.sync_variables(self.model)
        adam = inner_adam(self.model)
        values = {**logs, "learning_rate": adam.learning_rate, "gradient_norm": adam.gradient_norm}
        if self.step > step:
            values |= self.cost.rates(self.step - step, now - started)
        self.training.write(self.step, values)


class EventFile:
    """A TensorBoard event file, written without TensorFlow. The first `write` creates it.

    Args:
        folder: the folder of the file, which has a unique name.
    """

    def __init__(self, folder: Path):
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"

    def write(self, step: int, values: dict[str, float]) -> None:
        """Adds values by name."""
        summaries = [scalar_pb(name, float(value)) for name, value in values.items()]
        summary = Summary(value=[value for found in summaries for value in found.value])
        with naming(self.path):
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._append(Event(wall_time=time.time(), file_version="brain.Event:2"))
            self._append(Event(wall_time=time.time(), step=step, summary=summary))

    def _append(self, event):
        with open(self.path, "ab") as file:
            RecordWriter(file).write(event.SerializeToString())
