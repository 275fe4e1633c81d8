"""What TensorBoard shows of a run."""

import os
import time
from pathlib import Path

import keras
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from keras_transformer.atomic_files import naming
from keras_transformer.optimizers import adam_of
from keras_transformer.training.backends.devices import Devices
from keras_transformer.training.flops import StepCost


class Scalars(keras.callbacks.Callback):
    """Writes scalars over updates: those of training in `train`, those of validations in `validation`.

    Loss, perplexity and token accuracy of training are means since the last validation; the gradient's norm is the
    last update's. A resumed run writes on from its checkpoint's update.

    Args:
        folder: of the logs.
        step: where the training stood at the start.
        every: updates between values.
        work: of a step.
        devices: what the training runs on.
    """

    def __init__(self, folder: Path, step: int, every: int, cost: StepCost, devices: Devices):
        super().__init__()
        self.training, self.validation = (EventFile(folder / name) for name in ("train", "validation"))
        self.step = step
        self.every = every
        self.cost = cost
        self.devices = devices

    def on_epoch_begin(self, epoch, logs=None):
        self.since = self.step, time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.step += self.model.steps_per_execution
        if self.step % self.every < self.model.steps_per_execution:
            self._write_training(logs)

    def on_epoch_end(self, epoch, logs=None):
        values = {name[4:]: value for name, value in logs.items() if name.startswith("val_")}
        self.validation.write(self.step, values)

    def _write_training(self, logs):
        (step, begun), now = self.since, time.perf_counter()
        self.since = self.step, now
        self.devices.sync_variables(self.model)
        adam = adam_of(self.model)
        values = {**logs, "learning_rate": adam.learning_rate, "gradient_norm": adam.gradient_norm}
        if self.step > step:
            values |= self.cost.rates(self.step - step, now - begun)
        self.training.write(self.step, values)


class EventFile:
    """A file of scalars as TensorBoard reads them, written without TensorFlow; it is made with the first ones.

    Args:
        folder: where it is made, under a name of its own.
    """

    def __init__(self, folder: Path):
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"

    def write(self, step: int, values: dict[str, float]) -> None:
        """Adds scalars.

        Args:
            step: the update they are of.
            values: by their names.

        Raises:
            OSError: if they cannot be written.
        """
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
