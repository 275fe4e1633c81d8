import math

import keras
import pytest

from keras_transformer.training.checkpoints import CheckpointFiles, TrainingState, restore_random, seed_generators

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # From TensorFlow.


@pytest.fixture
def files(tmp_path):
    return CheckpointFiles(tmp_path / "checkpoints", every=10)


@pytest.fixture
def model():
    """A model with a seed generator."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1), keras.layers.Dropout(0.5)])
    model.compile("sgd", "mse")
    return model


def write(files, model, *steps):
    for step in steps:
        files.write(model, TrainingState(step=step))


def cut(files, step):
    files.path(step).write_bytes(files.path(step).read_bytes()[:-100])


def flip(files, step):
    """Changes one byte of the weights."""
    data = bytearray(files.path(step).read_bytes())
    data[len(data) // 2] ^= 1
    files.path(step).write_bytes(data)


def encrypt(files, step):
    """Marks the first file of the archive's directory as encrypted."""
    data = bytearray(files.path(step).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    files.path(step).write_bytes(data)


@pytest.mark.parametrize(
    ("losses", "best"),
    [([], None), ([3, 1, 2], 1), ([3, 1, 1], 1), ([math.nan, 3], 1), ([math.inf, 3], 1), ([2, math.nan], 0)],
)
def test_the_best_validation_has_the_lowest_loss(losses, best):
    state = TrainingState(validations=[{"step": i, "loss": loss} for i, loss in enumerate(losses)])
    assert state.best_step() == best


def test_the_best_by_bleu_is_the_greatest():
    state = TrainingState(validations=[{"step": i, "loss": i, "bleu": b} for i, b in enumerate((1, 3, 2))])
    assert (state.best_step("loss"), state.best_step("bleu"), state.best_step("bleu", until=0)) == (0, 1, 0)


def test_the_state_is_in_the_checkpoint(files, model):
    restore_random(model, [[11, 5]])
    files.write(model, TrainingState(step=3, seconds=1.5, validations=[{"step": 3, "loss": 2.0}]))
    restore_random(model, [[11, 6]])
    state = files.latest_valid()
    assert state == TrainingState(3, 1.5, [{"step": 3, "loss": 2.0}], [[11, 5]])
    restore_random(model, state.random)
    assert seed_generators(model)[0].numpy().tolist() == [11, 5]


def test_the_start(files):
    assert files.latest_valid() == TrainingState()
    assert "no valid checkpoint" in files.describe_last()


def test_the_last_are_kept_and_irregular_ones_go(files, model):
    write(files, model, 10, 17)
    assert files.steps() == [10, 17]
    write(files, model, 20)
    assert files.steps() == [10, 20]
    write(files, model, 30, 33)
    assert files.steps() == [20, 30, 33]


def test_a_checkpoint_of_another_run_is_refused(files, model):
    """Checkpoints without a run identifier, from earlier versions, belong to records without one."""
    write(files, model, 10)
    assert files.latest_valid().step == 10
    files.run = "new"
    with pytest.raises(ValueError, match="step-00000010.keras .* another run.*Received: run="):
        files.latest_valid()
    write(files, model, 20, 30, 40)
    cut(files, 40)
    assert files.latest_valid() == TrainingState(step=30, random=files.read(30).random, run="new")
    files.run = None
    with pytest.raises(ValueError, match="step-00000030.keras .*another run.*run='new'"):
        files.latest_valid()


@pytest.mark.parametrize("damage", [cut, flip, encrypt])
def test_a_broken_one_is_passed_by_and_in_the_end_replaced(files, model, damage, capsys):
    write(files, model, 10, 20)
    damage(files, 20)
    assert files.latest_valid().step == 10
    message = capsys.readouterr().err
    assert str(files.path(20)) in message and "step 10" in message
    assert str(files.path(10)) in files.describe_last()
    write(files, model, 15)
    assert files.steps() == [10, 15]  # Later checkpoints are from the abandoned continuation.


def test_the_best_and_the_last_checkpoints_are_kept(files, model):
    validations = []
    for step, loss in ((10, 1.0), (20, 2.0), (30, 3.0), (40, 0.5)):
        validations.append({"step": step, "loss": loss})
        files.write(model, TrainingState(step, validations=list(validations)))
    assert files.steps() == [10, 30, 40]


def test_an_error_in_writing_names_what_there_is(files, model, monkeypatch):
    write(files, model, 10)

    def save(path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model, "save", save)
    with pytest.raises(OSError, match="No space left on device") as caught, files.noting_last():
        write(files, model, 20)
    assert caught.value.filename == str(files.path(20))
    assert str(files.path(10)) in "".join(caught.value.__notes__)
    assert [path.name for path in files.folder.iterdir()] == ["step-00000010.keras"]
