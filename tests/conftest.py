"""Fixtures of the whole suite: seeds, the NumPy reference, and the rules for skipping."""

import importlib.util
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Of tiny arrays the compilation is what takes the time.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import keras
import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parent


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same random state."""
    keras.utils.set_random_seed(7)


@pytest.fixture(scope="session")
def reference():
    """The formulas in NumPy, `tests/reference.py`; no folder of tests is on the import path."""
    spec = importlib.util.spec_from_file_location("reference", FOLDER / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tensorflow():
    """TensorFlow, where it is the backend."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the contract is TensorFlow's own: the backend is another")
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="session")
def few_steps():
    """Options of `compile` for a few training steps: tracing them on TensorFlow takes ten times as long."""
    return {"run_eagerly": True} if keras.backend.backend() == "tensorflow" else {}


@pytest.fixture(scope="session")
def randomize():
    """Gives every trainable weight random values, biases too; normalisation scales are around 1."""

    def randomize(layer, seed=3, scale=0.5):
        rng = np.random.default_rng(seed)
        for weight in layer.trainable_weights:
            mean = 1.0 if weight.name == "gamma" else 0.0
            weight.assign(rng.normal(mean, scale, weight.shape).astype("float32"))
        return layer

    return randomize


@pytest.fixture
def run_python():
    """Runs a program in a fresh process and returns its standard output."""

    def run_python(program, *arguments, **environment):
        completed = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    return run_python
