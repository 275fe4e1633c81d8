"""Weight averaging: over the last checkpoints, and the optimizer's moving average."""

from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_transformer.optimizers import inner_adam
from keras_transformer.saving import load_model
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.checkpoints import CheckpointFiles
from keras_transformer.training.given import rebuilt


class AverageInValidations(keras.callbacks.Callback):
    """Validates with the optimizer's moving average, then restores the weights bit for bit."""

    def on_test_begin(self, logs=None):
        self.weights = self.model.get_weights()
        copy_moving_average(self.model)

    def on_test_end(self, logs=None):
        self.model.set_weights(self.weights)


def copy_moving_average(model: keras.Model) -> None:
    """Overwrites the weights of a compiled model with the moving average that its optimizer keeps."""
    inner_adam(model).copy_average(model.trainable_variables)


def average(path: str | Path, last: int | None = None) -> list[int]:
    """Replaces the model of a finished run with the average of its last checkpoints.

    Existing exports do not change.

    Args:
        path: the model directory.
        last: number of checkpoints. Default: the latest `keep_checkpoints`; an older best checkpoint is ignored.

    Returns:
        The steps of the averaged checkpoints.

    Raises:
        ValueError: if the run is not finished or has a moving average, fewer than `last` checkpoints are valid, or one
            belongs to another run.

    Example:

        average("runs/en-de", last=3)
    """
    directory = ModelDirectory(path)
    with directory.locked():
        record = directory.require_finished()
        if not record["finished"]:
            raise ValueError(f"The run in {directory.path} is not finished; average it when training has finished")
        if record["recipe"].get("moving_average") is not None:
            raise ValueError(
                f"{directory.path} was trained with `recipe.moving_average`, so its model is an average already"
            )
        files = CheckpointFiles(directory.checkpoints, run=record.get("run"))
        files.require_own()
        if not files.steps():
            raise ValueError(f"{directory.path} has no checkpoints to average")
        steps = files.steps()[-record["recipe"]["keep_checkpoints"] :]
        count = len(steps) if last is None else last
        if not 1 <= count <= len(steps):
            raise ValueError(
                f"`last` must be in [1, {len(steps)}], the number of checkpoints kept. Received: last={last}"
            )
        steps = steps[-count:]
        for step in steps:
            files.read(step)
        checkpoints = [files.path(step) for step in steps]
        write_model(directory, directory.tokenizer_models(), checkpoints)
        directory.write_record({**record, "weights_of_steps": steps}, finished=True)
    return steps


def write_model(
    directory: ModelDirectory, tokenizers: tuple[bytes, ...], checkpoints: Sequence[Path], moving: bool = False
) -> None:
    """Writes the finished model: the mean of the checkpoints' weights, in float32, without the optimizer.

    Args:
        directory: the model directory.
        tokenizers: see `ModelDirectory.write_tokenizers`.
        checkpoints: files of the checkpoints, at least one.
        moving: average the optimizer's moving averages instead of the weights.
    """
    model = rebuilt(load_model(checkpoints[0], compile=False), dtype="float32")
    sums = [np.zeros(weight.shape, "float64") for weight in model.get_weights()]
    for path in checkpoints:
        checkpoint = load_model(path, compile=moving)
        if moving:
            copy_moving_average(checkpoint)
        for total, weight in zip(sums, checkpoint.get_weights(), strict=True):
            total += weight
    model.set_weights([total / len(checkpoints) for total in sums])
    with directory.replacing_model(tokenizers) as temporary:
        model.save(temporary)
