import pytest

tf = pytest.importorskip("tensorflow")

from keras_transformer.training.backends.tensorflow import make_strategy  # noqa: E402

DEVICES = """
from keras_transformer.training.backends.tensorflow import make_strategy
strategy = make_strategy({!r})
print(type(strategy).__name__, strategy.num_replicas_in_sync, *strategy.extended.worker_devices)
"""


def test_without_gpus_the_default_strategy():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there are GPUs")
    assert make_strategy(None) is tf.distribute.get_strategy()


def test_one_device():
    strategy = make_strategy("cpu:0")
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert strategy.num_replicas_in_sync == 1


def test_several_cpus(run_python):
    printed = run_python(DEVICES.format("CPU:0, CPU:1")).split()
    assert printed[:2] == ["MirroredStrategy", "2"]
    assert [name[-5:] for name in printed[2:]] == ["CPU:0", "CPU:1"]


@pytest.mark.parametrize("devices", ["GPU:7", "CPU:0,TPU:3", "CPU:0,CPU:5", "nonsense", "CPU:x,CPU:y", "CPU:0,"])
def test_a_device_that_is_not_there(devices):
    with pytest.raises(ValueError, match="`devices` must be among .*'CPU:0'.*Received: "):
        make_strategy(devices)


def test_a_device_named_twice():
    with pytest.raises(ValueError, match="`devices` must be different ones. Received: CPU:0,cpu:0"):
        make_strategy("CPU:0,cpu:0")
