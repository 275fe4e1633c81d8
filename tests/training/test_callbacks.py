import json

import keras
import numpy as np
import pytest

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.training.callbacks import Checkpoints, Progress

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Of TensorFlow.


@pytest.fixture
def directory(tmp_path):
    return ModelDirectory(tmp_path)


@pytest.fixture
def checkpoints(directory):
    """A callback with a model of one weight."""
    callback = Checkpoints(directory, every=3, patience=None)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse")
    callback.set_model(model)
    return callback


def validate(callback, loss, weight=0.0):
    """A step that leads to this weight, and a validation with this loss."""
    callback.model.set_weights([np.array([[weight]])])
    callback.on_train_batch_end(0)
    callback.on_epoch_end(0, {"val_loss": loss})


def best_weight(callback):
    callback.model.load_weights(callback.best)
    return float(callback.model.get_weights()[0][0, 0])


def test_checkpoints_every_so_many_steps(checkpoints):
    existed = []
    for step in range(7):
        checkpoints.on_train_batch_end(step)
        existed.append(checkpoints.last.exists())
        checkpoints.last.unlink(missing_ok=True)
    assert existed == [False, False, True, False, False, True, False]


def test_the_best_weights_are_those_of_the_least_loss(checkpoints):
    for loss, weight in ((3.0, 1.0), (1.0, 2.0), (2.0, 3.0)):
        checkpoints.on_train_batch_end(0)
        validate(checkpoints, loss, weight)
    assert best_weight(checkpoints) == 2.0
    assert keras.saving.load_model(checkpoints.last).get_weights()[0] == 3.0


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_loss_that_is_no_number_is_not_the_best(checkpoints, loss, place):
    validations = [(3.0, 1.0), (1.0, 3.0), (2.0, 4.0)]
    validations.insert(place, (loss, 2.0))
    for value, weight in validations:
        validate(checkpoints, value, weight)
    assert best_weight(checkpoints) == 3.0


def test_there_are_best_weights_even_of_a_run_that_diverged(checkpoints):
    validate(checkpoints, float("nan"), 5.0)
    assert best_weight(checkpoints) == 5.0


def test_the_record_of_validations(checkpoints):
    for loss in (3.0, 2.0):
        validate(checkpoints, loss)
    entries = json.loads(checkpoints.history_file.read_text())
    assert [(entry["step"], entry["loss"]) for entry in entries] == [(1, 3.0), (2, 2.0)]


def test_resuming_forgets_validations_after_the_checkpoint(checkpoints, directory):
    for loss in (3.0, 1.0, 2.0):
        validate(checkpoints, loss)
        if loss == 1.0:
            kept = checkpoints.last.read_bytes()
    checkpoints.last.write_bytes(kept)  # Killed before the third checkpoint was whole.
    resumed = Checkpoints(directory, every=3, patience=None)
    assert resumed.resume() == resumed.step == 2
    assert [entry["loss"] for entry in resumed.history] == [3.0, 1.0]


@pytest.mark.parametrize(
    ("patience", "losses", "stops"),
    [
        (None, [1, 2, 3, 4], False),
        (2, [], False),
        (2, [3, 2, 1], False),
        (2, [1, 2], False),
        (2, [1, 2, 3], True),
        (2, [3, 1, 2, 2], True),
        (1, [3, 1, 2], True),
        (1, [3, 3], True),
        (1, [float("nan"), 3], False),
        (1, [float("nan"), float("nan")], True),
    ],
)
def test_patience(directory, patience, losses, stops):
    callback = Checkpoints(directory, every=1, patience=patience)
    callback.history = [{"step": i, "loss": loss} for i, loss in enumerate(losses)]
    assert callback.should_stop == stops


def test_progress_goes_to_standard_error(capsys):
    bar = Progress(total=4, start=2, tokens_per_step=100)
    bar.on_train_batch_end(0, {"loss": 1.5})
    logs = {"loss": 1.5, "val_loss": 1.25, "val_perplexity": 3.5, "val_token_accuracy": 0.5}
    bar.on_epoch_end(0, logs)
    bar.bar.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "step 3: loss 1.5000, validation loss 1.2500, perplexity 3.500, token accuracy 0.5000" in captured.err
    assert "3/4" in captured.err and "tokens/s" in captured.err
