"""Every layer and model is loaded by a new process that imports the package only."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.slow
to_numpy = keras.ops.convert_to_numpy

#: Loads all models of a folder, and writes the outputs for the inputs beside them.
LOAD = """
import pathlib, sys
import keras, numpy as np
import keras_transformer.layers, keras_transformer.models

for path in pathlib.Path(sys.argv[1]).glob("*.keras"):
    model = keras.saving.load_model(path)
    with np.load(path.with_suffix(".inputs.npz")) as arrays:
        inputs = dict(arrays) if "source" in arrays else [arrays[name] for name in arrays]
    output = model(inputs if isinstance(inputs, dict) or len(inputs) > 1 else inputs[0])
    np.save(path.with_suffix(".npy"), keras.ops.convert_to_numpy(output))
"""


@pytest.fixture(scope="module")
def loaded(tables, randomize, tmp_path_factory):
    """For each row of the tables the output before it was saved, and that of the new process."""
    folder, expected = tmp_path_factory.mktemp("models"), {}
    for number, (name, case) in enumerate(tables.items()):
        keras.utils.set_random_seed(7)
        if hasattr(case, "sides"):
            model, inputs = case.make(dtype="float32"), case.inputs()
        else:
            model, inputs = case.functional(case.make("float32")), case.arrays()
        randomize(model, scale=0.3).save(folder / f"{number}.keras")
        named = inputs if isinstance(inputs, dict) else {f"{i}": x for i, x in enumerate(keras.tree.flatten(inputs))}
        np.savez(folder / f"{number}.inputs.npz", **named)
        expected[name] = to_numpy(model(inputs)), folder / f"{number}.npy"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", LOAD, str(folder)], env=environment, check=True)
    return {name: (output, np.load(path)) for name, (output, path) in expected.items()}


def assert_equal(outputs):
    np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-5)


def test_a_new_process_loads_each_layer(case, loaded, request):
    assert_equal(loaded[request.node.callspec.params["case"]])


def test_a_new_process_loads_each_model(model_case, loaded, request):
    assert_equal(loaded[request.node.callspec.params["model_case"]])
