import keras
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from keras_transformer.optimizers import Adam
from keras_transformer.training.backends import make_devices
from keras_transformer.training.flops import StepCost
from keras_transformer.training.scalars import EventFile, Scalars


def scalars_of(folder):
    """Values by name and step."""
    events = EventAccumulator(str(folder)).Reload()
    return {
        name: {event.step: float(tensor_util.make_ndarray(event.tensor_proto)) for event in events.Tensors(name)}
        for name in events.Tags()["tensors"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # From TensorBoard.
@pytest.mark.parametrize("scaled", [False, True])
def test_scalars_are_written_over_updates(tmp_path, monkeypatch, scaled):
    monkeypatch.setattr(Adam, "gradient_norm", 1.5)
    optimizer = keras.optimizers.LossScaleOptimizer(Adam(0.25)) if scaled else Adam(0.25)
    monkeypatch.setattr("time.perf_counter", iter(range(100)).__next__)
    work = StepCost(tokens=50.0, padding=0.25, flops=2e12, peak=8e12)
    callback = Scalars(tmp_path, 3, 2, work, make_devices(None))
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    callback.set_model(model)
    callback.on_epoch_begin(0)
    for step in range(4, 8):
        callback.on_train_batch_end(0, {"loss": step / 2})
    callback.on_epoch_end(0, {"loss": 1.0, "val_loss": 2.0, "val_bleu": 30.0})
    assert scalars_of(tmp_path / "train") == {
        "loss": {4: 2.0, 6: 3.0},
        "learning_rate": {4: 0.25, 6: 0.25},
        "gradient_norm": {4: 1.5, 6: 1.5},
        "tokens_per_second": {4: 50.0, 6: 100.0},
        "padding": {4: 0.25, 6: 0.25},
        "mfu": {4: 0.25, 6: 0.5},
    }
    assert scalars_of(tmp_path / "validation") == {"loss": {7: 2.0}, "bleu": {7: 30.0}}


def test_a_resumed_run_writes_to_another_file(tmp_path):
    for step in (1, 2):
        EventFile(tmp_path).write(step, {"loss": step / 2})
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    def write(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("keras_transformer.training.scalars.RecordWriter.write", write)
    file = EventFile(tmp_path)
    with pytest.raises(OSError, match="No space left on device") as caught:
        file.write(3, {"loss": 2.0})
    assert caught.value.filename == str(file.path)
