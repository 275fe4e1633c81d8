"""Averages of weights: over the last checkpoints, and the moving one that the optimizer keeps."""

from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_transformer.atomic_files import atomic_write
from keras_transformer.config import TransformerConfig
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.models import Transformer
from keras_transformer.optimizers import adam_of
from keras_transformer.saving import load_model
from keras_transformer.training.checkpoints import CheckpointFiles


class AverageInValidations(keras.callbacks.Callback):
    """Has validations see the moving average, and puts the weights back, bit for bit, after each."""

    def on_test_begin(self, logs=None):
        self.weights = self.model.get_weights()
        copy_moving_average(self.model)

    def on_test_end(self, logs=None):
        self.model.set_weights(self.weights)


def copy_moving_average(model: keras.Model) -> None:
    """Puts the optimizer's moving average in the place of the weights.

    Args:
        model: compiled with an `Adam` of this package that keeps one.
    """
    adam_of(model).copy_average(model.trainable_variables)


def average(directory: ModelDirectory, last: int | None = None) -> list[int]:
    """Makes the model of a finished run anew, of the mean of its last checkpoints' weights.

    Args:
        directory: the model directory; its exports are of the weights before and stay as they are.
        last: how many checkpoints. Default: all that the run has kept, without the best where that is older.

    Returns:
        The steps of the checkpoints.

    Raises:
        ValueError: if the directory holds no finished model, not so many whole checkpoints, or those of another run.
    """
    with directory.locked():
        record = directory.require_finished()
        if not record["finished"]:
            raise ValueError(f"{directory.path} is being trained for longer; average it when it has finished")
        files = CheckpointFiles(directory.checkpoints, run=record.get("run"))
        files.require_own()
        if not files.steps():
            raise ValueError(f"{directory.path} has no checkpoints to average")
        steps = files.steps()[-record["recipe"]["keep_checkpoints"] :]
        count = len(steps) if last is None else last
        if not 1 <= count <= len(steps):
            raise ValueError(f"`last` must be in [1, {len(steps)}], the checkpoints kept. Received: last={last}")
        steps = steps[-count:]
        for step in steps:
            files.read(step)
        write_model(directory, TransformerConfig(**record["model_config"]), [files.path(step) for step in steps])
        directory.write_record({**record, "weights_of_steps": steps}, finished=True)
    return steps


def write_model(directory: ModelDirectory, built: TransformerConfig, checkpoints: Sequence[Path], moving=False) -> None:
    """Writes the model that translates: float32, without optimizer, with the checkpoints' mean weights.

    Args:
        directory: the model directory.
        built: configuration of the model.
        checkpoints: one or more.
        moving: take the optimizer's moving averages instead of the weights.
    """
    model = Transformer(built)
    sums = [np.zeros(weight.shape, "float64") for weight in model.get_weights()]
    for path in checkpoints:
        checkpoint = load_model(path, compile=moving)
        if moving:
            copy_moving_average(checkpoint)
        for total, weight in zip(sums, checkpoint.get_weights(), strict=True):
            total += weight
    model.set_weights([total / len(checkpoints) for total in sums])
    with atomic_write(directory.model_file) as temporary:
        model.save(temporary)
