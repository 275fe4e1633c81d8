"""What TensorBoard shows of a run."""

import time
from pathlib import Path

import keras
import tensorflow as tf

from keras_transformer.optimizers import adam_of
from keras_transformer.training.checkpoints import TrainingState


class Scalars(keras.callbacks.Callback):
    """Writes scalars over updates: those of training in `train`, those of validations in `validation`.

    Loss, perplexity and token accuracy of training are means since the last validation; the gradient's norm is the
    last update's. A resumed run writes on from its checkpoint's update.

    Args:
        folder: of the logs.
        state: where the training stands; held up to date by `Checkpoints`, which comes before.
        every: updates between values.
        tokens_per_step: real target tokens of a batch on average.
    """

    def __init__(self, folder: Path, state: TrainingState, every: int, tokens_per_step: float):
        super().__init__()
        self.training, self.validation = (
            tf.summary.create_file_writer(str(folder / name)) for name in ("train", "validation")
        )
        self.state = state
        self.every = every
        self.tokens_per_step = tokens_per_step

    def on_epoch_begin(self, epoch, logs=None):
        self.since = self.state.step, time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if self.state.step % self.every == 0:
            self._write_training(logs)

    def on_epoch_end(self, epoch, logs=None):
        self._write(self.validation, {name[4:]: value for name, value in logs.items() if name.startswith("val_")})

    def _write_training(self, logs):
        (step, begun), now = self.since, time.perf_counter()
        self.since = self.state.step, now
        adam = adam_of(self.model)
        values = {**logs, "learning_rate": adam.learning_rate, "gradient_norm": adam.gradient_norm}
        if self.state.step > step:
            values["tokens_per_second"] = (self.state.step - step) * self.tokens_per_step / (now - begun)
        self._write(self.training, values)

    def _write(self, writer, values):
        try:
            with writer.as_default(step=self.state.step):
                for name, value in values.items():
                    tf.summary.scalar(name, float(value))
            writer.flush()
        except tf.errors.OpError as error:  # That there is no space, among others.
            raise OSError(f"The logs for TensorBoard cannot be written: {error.message}") from error
