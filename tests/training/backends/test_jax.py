import re

import pytest

DEVICES = """
import keras
from keras_transformer.training.backends import make_devices
try:
    devices = make_devices({!r})
    distribution = keras.distribution.distribution()
    print(devices.count, devices.kind, None if distribution is None else distribution.device_mesh.devices.tolist())
except ValueError as error:
    print(error)
"""


@pytest.fixture
def made(run_python):
    pytest.importorskip("jax")

    def made(names):
        return run_python(DEVICES.format(names), KERAS_BACKEND="jax", JAX_PLATFORMS="cpu").strip()

    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "printed"),
    [
        (None, "1 CPU None"),
        ("CPU:0, cpu:1", r"2 CPU \['cpu:0', 'cpu:1'\]"),
        ("GPU:7", r"`devices` .*\['CPU:0'\].*Received: devices=GPU:7"),
        ("CPU:0,cpu:0", "`devices` .*repeat.*Received: devices=CPU:0,cpu:0"),
    ],
)
def test_devices_are_those_named(made, names, printed):
    assert re.fullmatch(printed, made(names))


@pytest.mark.slow
def test_torch_does_not_train(run_python):
    pytest.importorskip("torch")
    printed = run_python(DEVICES.format(None), KERAS_BACKEND="torch")
    assert "Received: KERAS_BACKEND=torch" in printed


@pytest.mark.slow
def test_workers_are_refused(run_python):
    pytest.importorskip("jax")
    config = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}'
    printed = run_python(DEVICES.format(None), KERAS_BACKEND="jax", JAX_PLATFORMS="cpu", TF_CONFIG=config)
    assert re.search("tensorflow .*TF_CONFIG.* jax", printed)
