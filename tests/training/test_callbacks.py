import json
import math
import re
import sys
import types

import keras
import numpy as np
import pytest

from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.backends import make_devices
from keras_transformer.training.callbacks import Callbacks, Checkpoints, Divergence
from keras_transformer.training.checkpoints import CheckpointFiles, TrainingState
from keras_transformer.training.config import RecipeConfig
from keras_transformer.training.progress import Progress
from keras_transformer.training.stopping import Diverged, Interrupted, StopRequest

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # From TensorFlow.


@pytest.fixture
def directory(tmp_path):
    return ModelDirectory(tmp_path)


@pytest.fixture
def model():
    """A model with one weight."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", "mse")
    model.stop_training = False
    return model


@pytest.fixture
def make(directory, model):
    """Makes the callbacks of a run with 100 steps, a validation every 10 and a checkpoint every 3."""

    def make(state=None, request=None, devices=None, **recipe):
        files = CheckpointFiles(directory.checkpoints, every=3, best_by=RecipeConfig(**recipe).best_by)
        state = state or TrainingState()
        divergence = Divergence(files, state, steps_per_epoch=7, limit=50.0)
        others = request or StopRequest(), devices or make_devices(None)
        batches = types.SimpleNamespace(position=lambda step: [7, step])
        plan = types.SimpleNamespace(total=100, batches=batches)
        callback = Checkpoints(directory, files, state, RecipeConfig(**recipe), 10, plan, divergence, *others)
        for one in (divergence, callback):
            one.set_model(model)
            one.on_epoch_begin(0)
        return callback

    return make


def step(callback, loss=1.0):
    callback.divergence.on_train_batch_end(0, {"loss": loss})
    callback.on_train_batch_end(0, {"loss": loss})


def validate(callback, loss, weight=0.0):
    """Runs steps up to a validation with this weight and loss."""
    callback.model.set_weights([np.array([[weight]])])
    step(callback)
    while callback.state.step % 10:
        step(callback)
    callback.on_epoch_end(0, {"loss": 5.0, "val_loss": loss})


def weight_at(callback, number):
    return float(keras.saving.load_model(callback.files.path(number)).get_weights()[0][0, 0])


def test_checkpoints_are_written_regularly_and_after_validations(make):
    callback, written = make(), []
    for number in range(1, 13):
        before = callback.files.steps()
        step(callback)
        written += sorted(set(callback.files.steps()) - set(before))
        if number == 10:
            assert written == [3, 6, 9]
            callback.on_epoch_end(0, {"loss": 5.0, "val_loss": 1.0})
            assert callback.files.steps()[-1] == 10
    assert written == [3, 6, 9, 12]


def test_the_best_is_kept_among_the_last(make):
    callback = make()
    for loss, weight in ((3.0, 1.0), (1.0, 2.0), (2.0, 3.0), (4.0, 4.0)):
        validate(callback, loss, weight)
    assert callback.state.best_step() == 20
    assert callback.files.steps() == [20, 39, 40]
    assert weight_at(callback, 20) == 2.0 and weight_at(callback, 40) == 4.0


def test_validations_are_recorded(make):
    callback = make()
    for loss in (3.0, 2.0):
        validate(callback, loss)
    entries = json.loads(callback.history_file.read_text())
    found = [(entry["step"], entry["loss"], entry["training_loss"]) for entry in entries]
    assert found == [(10, 3.0, 5.0), (20, 2.0, 5.0)]
    assert callback.files.read(20).validations == entries
    assert [entry["step"] for entry in callback.files.read(18).validations] == [10]
    assert callback.files.read(18).position == [7, 18]


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
def test_training_stops_when_patience_ends(make, patience, losses, stops):
    validations = [{"step": i, "loss": loss} for i, loss in enumerate(losses)]
    assert make(TrainingState(validations=validations), patience=patience).should_stop == stops


def test_time_runs_out_and_earlier_time_counts(make, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    callback = make(TrainingState(step=4, seconds=60.0), max_time=2.0)
    now[0] += 59.0
    step(callback)
    assert not callback.model.stop_training and not callback.should_stop
    now[0] += 1.0
    step(callback)
    assert callback.model.stop_training and callback.should_stop
    assert callback.files.steps() == []  # The checkpoint follows the validation and contains the time.
    callback.on_epoch_end(0, {"loss": 5.0, "val_loss": 1.0})
    assert callback.files.read(6).seconds == 120.0


def test_a_request_to_stop_saves_at_once(make):
    request = StopRequest()
    callback = make(request=request)
    step(callback)
    request.number = 15
    with pytest.raises(Interrupted, match="SIGTERM.*step-00000002") as caught:
        step(callback)
    assert caught.value.status == 143
    assert callback.files.steps() == [2]


def test_a_request_to_stop_waits_for_the_validation(make):
    request = StopRequest()
    callback = make(TrainingState(step=9), request=request)
    request.number = 2
    step(callback)
    assert callback.files.steps() == []
    with pytest.raises(Interrupted):
        callback.on_epoch_end(0, {"loss": 5.0, "val_loss": 1.0})
    assert callback.files.read(10).validations[0]["step"] == 10


def test_the_checkpoint_of_an_interruption_is_deleted_after_the_next(make):
    callback = make()
    for number in range(1, 10):
        callback.request.number = 15 if number == 8 else None
        try:
            step(callback)
        except Interrupted:
            assert callback.files.steps() == [3, 6, 8]
    assert callback.files.steps() == [6, 9]


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 50.5])
def test_a_loss_that_runs_away_ends_the_run(make, loss):
    callback = make(TrainingState(step=5))
    step(callback)
    mean = (1.0 + loss) / 2  # Keras reports the mean of the epoch.
    step(callback, mean)
    with pytest.raises(Diverged) as caught:
        step(callback, mean)
    message = str(caught.value)
    assert re.search(f"loss .*{re.escape(f'{loss:.4g}')} .*step 7, batch 7 of epoch 1", message)
    assert str(callback.files.path(6)) in message
    assert callback.files.steps() == [6]


@pytest.mark.parametrize("steps", [3, 10])
def test_the_last_loss_before_a_checkpoint_or_a_validation_is_checked(make, steps):
    callback = make()
    for _ in range(steps - 1):
        step(callback)
    with pytest.raises(Diverged, match=f"step {steps}, "):
        step(callback, math.nan)
        callback.divergence.on_test_begin()
    assert steps not in callback.files.steps()


def test_a_high_loss_is_not_one_that_runs_away(make):
    callback = make()
    for mean in (49.0, 49.5, 49.5):
        step(callback, mean)


def refuse(*_):
    raise AssertionError("A step waits for the device")


class Unfinished:
    """A loss that the device has not computed yet."""

    __float__ = __format__ = refuse


def test_a_step_waits_for_nothing(make, model, monkeypatch):
    """Neither for its own loss nor, on JAX, for the variables, which `Callback.model` reads."""
    callback, bar = make(), Progress(total=4, start=0, steps_per_epoch=2, tokens_per_step=100, limit=math.inf)
    bar.on_train_batch_end(0, {"loss": 1.0})
    monkeypatch.setattr(keras.callbacks.Callback, "model", property(refuse))
    step(callback, Unfinished())
    bar.on_train_batch_end(0, {"loss": Unfinished()})
    bar.bar.close()


def test_callbacks_get_tensors_in_fit(model):
    found = []
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: found.append(logs["loss"]))
    data = {"x": np.ones((4, 1)), "y": np.ones((4, 1))}
    history = model.fit(**data, batch_size=2, verbose=0, callbacks=Callbacks([callback], model))
    assert len(found) == 2 and all(keras.ops.is_tensor(loss) for loss in found)
    assert isinstance(history.history["loss"][0], float)


@pytest.mark.parametrize("seconds", [0.05, 0.4, 2.0])
def test_the_speed_is_that_of_the_device(make, monkeypatch, seconds):
    """The host needs less time for a step than the device, and waits for it only where it reads a loss."""
    now, done = [1000.0], [1000.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    class Loss:
        def __init__(self):
            now[0] += 0.01
            self.ready = done[0] = max(done[0], now[0]) + seconds

        def __float__(self):
            now[0] = max(now[0], self.ready)
            return 1.0

        def __format__(self, form):
            return format(float(self), form)

    divergence = make().divergence
    progress = Progress(total=99, start=0, steps_per_epoch=9, tokens_per_step=100, limit=math.inf)
    for _ in range(60):
        logs = {"loss": Loss()}
        for callback in (divergence, progress):
            callback.on_train_batch_end(0, logs)
    progress.bar.close()
    assert progress.rate == pytest.approx(1 / seconds, rel=0.02)


def test_weights_that_are_no_numbers_are_not_saved(make):
    callback = make()
    callback.model.set_weights([np.array([[np.nan]])])
    step(callback)
    step(callback)
    with pytest.raises(Diverged, match="NaN.* step 3, batch 3 of epoch 1.*no valid checkpoint"):
        step(callback)
    assert callback.files.steps() == []


def test_progress_goes_to_standard_error(capsys, model, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = Progress(total=4, start=1, steps_per_epoch=2, tokens_per_step=100, limit=math.inf)
    bar.set_model(model)
    for _ in range(2):
        bar.on_train_batch_end(0, {"loss": 1.5})
    logs = {"loss": 1.5, "val_loss": 1.25, "val_perplexity": 3.5, "val_token_accuracy": 0.5, "val_bleu": 31.25}
    bar.on_epoch_end(0, logs)
    bar.bar.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    for shown in (
        "2/2",
        "step 3",
        "loss 1.5000",
        "validation loss 1.2500",
        "3.500",
        "accuracy 0.5000",
        "31.25",
        "00:00",
    ):
        assert shown in captured.err
    assert captured.err.count("\r") > 1 and "epoch 2/2:  75%" in captured.err and "val_loss" not in captured.err
    assert "3/4" in captured.err and "tokens/s" in captured.err and "left=00:00" in captured.err


def test_progress_in_a_file_is_lines(capsys, model, monkeypatch):
    """Lines are rare in practice; here each step prints one."""
    monkeypatch.setattr("keras_transformer.storage.progress.LINE_EVERY", 1e-9)
    bar = Progress(total=3, start=1, steps_per_epoch=2, tokens_per_step=100, limit=math.inf)
    bar.set_model(model)
    for _ in range(2):
        bar.on_train_batch_end(0, {"loss": 1.5})
    lines = capsys.readouterr().err.split("\n")
    expected = ["epoch 1/2:  67%|######6   | 2/3 ", "epoch 2/2: 100%|##########| 3/3 ", ""]
    assert [line.split("[")[0] for line in lines] == expected
    assert "left=?" in lines[0] and "left=00:00" in lines[1]
    bar.bar.close()


@pytest.mark.parametrize(("limit", "left"), [(math.inf, "01:15"), (500.0, "01:15"), (440.0, "00:20"), (10.0, "00:00")])
def test_the_time_left_counts_no_compilation(limit, left, model, monkeypatch):
    """Of 20 steps the first takes 300 seconds, the fourth includes a checkpoint, the others take 5 seconds."""
    now = [1000.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    progress = Progress(total=25, start=5, steps_per_epoch=5, tokens_per_step=100, limit=limit)
    progress.set_model(model)
    for seconds in (300, 5, 5, 105, 5):
        progress.on_train_batch_begin(0)
        now[0] += seconds
        progress.on_train_batch_end(0, {"loss": 1.0})
    monkeypatch.setattr(type(progress.bar), "format_dict", {"elapsed": 420.0})
    assert (progress.left, progress.rate, progress.epoch) == (left, 0.2, "epoch 2/5")
    progress.bar.disable = True


def as_worker(number):
    devices = make_devices(None)
    devices.worker, devices.workers = number, 2
    return devices


def test_only_the_chief_writes(make, directory):
    for number in (1, 0):
        callback = make(devices=as_worker(number))
        for _ in range(4):
            step(callback)
        validate(callback, 2.0)
        assert callback.state.validations[0]["step"] == 10
        assert directory.checkpoints.exists() == (number == 0)


@pytest.mark.parametrize("number", [0, 1])
def test_all_workers_stop_with_one(make, number):
    devices = as_worker(number)
    # Answers in the order of the questions: stop or time limit? stop? time limit? after the checkpoint: stop?
    answers = iter([True, True, False, True])
    devices.any_worker = lambda flag: next(answers)
    with pytest.raises(Interrupted, match="SIGTERM") as caught:
        step(make(devices=devices))
    assert caught.value.status == 143
