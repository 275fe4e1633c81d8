"""Every layer inside models that other people write: what Keras does with those, it does with these layers in them."""

import inspect
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer import masks

to_numpy = keras.ops.convert_to_numpy
TABLE = pathlib.Path(__file__).parent / "conftest.py"
NEEDS_MEMORY = "a Sequential model passes one tensor on, and a decoder with a memory takes two"
NO_WEIGHTS = "the layer has no weights"
NO_PARTS = "the layer has no sub-layer with weights"
TAKES_NO_MASK = "the layer passes masks on and applies none"
MAKES_ITS_MASK = "the layer takes ids, of which it makes the mask itself"


@keras.saving.register_keras_serializable(package="tests")
class Host(keras.Model):
    """A subclassed model around a layer."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer, self.head = layer, keras.layers.Dense(3)

    def call(self, inputs):
        return self.head(self.layer(*inputs))


@pytest.mark.slow
@pytest.mark.portable
def test_weights_of_a_subclassed_model_are_loaded_again(case, few_steps, tmp_path):
    models = [Host(case.make("float32")) for _ in range(2)]
    arrays, labels = case.arrays(), np.zeros((*case.shape()[:-1], 3), "float32")
    for model in models:
        model.compile("adam", "mse", **few_steps)
        model.train_on_batch(arrays, labels)
    one, other = models
    before = one.predict_on_batch(arrays)
    one.save_weights(tmp_path / "all.weights.h5")
    assert not np.allclose(before, other.predict_on_batch(arrays), atol=1e-4)
    other.load_weights(tmp_path / "all.weights.h5")
    np.testing.assert_allclose(other.predict_on_batch(arrays), before, atol=1e-5)


@pytest.mark.slow
def test_a_sequential_model_is_saved_and_loaded(case, tmp_path, randomize):
    layer = case.make("float32")
    if type(layer).__name__ in ("Decoder", "DecoderLayer"):
        pytest.skip(NEEDS_MEMORY)
    (_, width), array = case.inputs[0], case.arrays()[0]
    inputs = keras.Input((None,), dtype="int32") if width is None else keras.Input((None, width))
    model = randomize(keras.Sequential([inputs, layer, keras.layers.Dense(3)]))
    assert model.output_shape == (*case.shape(None, None)[:-1], 3)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(array, verbose=0), to_numpy(model(array)), rtol=1e-4, atol=1e-4)


def masked(case, source):
    """The case's inputs as a layer leaves them that masks their last two positions; and without these."""
    arrays = case.arrays()
    if source == "masking":
        for array in arrays:
            array[:, -2:] = 0
        return [keras.layers.Masking()(array) for array in arrays], [array[:, :-2] for array in arrays]
    found = []
    for array in arrays:
        ids = np.random.default_rng(1).integers(1, 11, array.shape[:2])
        ids[:, -2:] = 0
        found.append(keras.layers.Embedding(11, array.shape[-1], mask_zero=True)(ids))
    return found, [to_numpy(x)[:, :-2] for x in found]


@pytest.mark.parametrize("source", ["masking", "embedding"])
def test_masks_of_other_layers_apply_and_pass_on(case, source):
    """What is masked never matters, and the mask is passed on unless the layer ends it."""
    layer = case.make("float32")
    if case.inputs[0][1] is None:
        pytest.skip(MAKES_ITS_MASK)
    inputs, without = masked(case, source)
    output = layer(*inputs)
    end = None if case.is_pooled else -2
    np.testing.assert_allclose(to_numpy(output)[:, :end], to_numpy(layer(*without)), atol=1e-5)
    mask = masks.resolve(None, output)
    if case.is_pooled or type(layer).__name__ == "TiedLogits":
        assert mask is None
    else:
        np.testing.assert_array_equal(to_numpy(mask), [[True] * 3 + [False] * 2] * 2)


def test_explicit_masks_are_those_of_other_layers(case):
    """A mask that is given as an argument masks what the implicit mask of the same input masks."""
    layer = case.make("float32")
    if case.inputs[0][1] is None:
        pytest.skip(MAKES_ITS_MASK)
    names = [*inspect.signature(layer.call).parameters]
    arguments = [name if f"{name}_mask" in names else "" for name in names[: len(case.inputs)]]
    arguments = [f"{name}_mask".lstrip("_") for name in arguments]  # One input has `mask`.
    if not {*arguments} <= {*names}:
        pytest.skip(TAKES_NO_MASK)
    inputs, given = [], []
    for array in case.arrays():
        ids = np.random.default_rng(1).integers(1, 11, array.shape[:2])
        ids[:, [1, -1]] = 0  # Also a position that later ones would attend to.
        inputs.append(keras.layers.Embedding(11, array.shape[-1], mask_zero=True)(ids))
        given.append(ids != 0)
    plain = [keras.ops.convert_to_tensor(to_numpy(x)) for x in inputs]
    found, expected, unmasked = (
        to_numpy(x)[slice(None) if case.is_pooled else given[0]]
        for x in (layer(*plain, **dict(zip(arguments, given, strict=True))), layer(*inputs), layer(*plain))
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found - unmasked).max() > 1e-4


def test_a_frozen_sub_layer_stays_as_it_is(case, few_steps, tmp_path):
    layer = case.make("float32")
    model = case.functional(layer)
    part = next((x for x in layer._flatten_layers(include_self=False) if x.trainable_weights), None)
    if part is None:
        pytest.skip(NO_PARTS)
    part.trainable = False
    model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
    frozen, before = {weight.path for weight in part.weights}, {w.path: to_numpy(w).copy() for w in layer.weights}
    model.train_on_batch(case.arrays(), np.ones(case.shape(), "float32"))
    moved = {w.path for w in layer.weights if not np.array_equal(before[w.path], to_numpy(w))}
    assert frozen and not frozen & moved
    assert bool(moved) == any(weight.path not in frozen for weight in layer.trainable_weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [w.path for w in loaded.trainable_weights] == [w.path for w in model.trainable_weights]


#: One step of each layer on one and on two replicas, without dropout: how far their weights lie apart, and have moved.
REPLICAS = """
import importlib.util, json, sys
import keras, numpy as np, tensorflow as tf

spec = importlib.util.spec_from_file_location("table", sys.argv[1])
table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table)
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
found = {}
for name, case in table.LAYERS.items():
    initial, ends = None, []
    for devices in (["CPU:0"], ["CPU:0", "CPU:1"]):
        with tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice()).scope():
            model = case.functional(case.make("float32"))
            for part in model._flatten_layers():
                if isinstance(part, keras.layers.Dropout):
                    part.rate = 0.0
            initial = initial or model.get_weights()
            model.set_weights(initial)
            model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        # Without padding: for a mask on the output Keras would average over each replica's own positions.
        arrays = [np.where(array == 1, 4, array) for array in case.arrays(rows=4)]
        model.fit(arrays, np.ones(case.shape(rows=4), "float32"), batch_size=4, verbose=0)
        ends.append(model.get_weights())
    # The last batch has fewer rows than replicas.
    model.fit(case.arrays(rows=5), np.ones(case.shape(rows=5), "float32"), batch_size=4, shuffle=False, verbose=0)
    assert all(np.isfinite(weight).all() for weight in model.get_weights()), name
    apart = [float(abs(a - b).max()) for a, b in zip(*ends)]
    moved = [float(abs(a - b).max()) for a, b in zip(initial, ends[0])]
    found[name] = [max(apart, default=0.0), max(moved, default=None)]
case = table.MODELS["Transformer"]
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()).scope():
    model = case.make()
    inside = model.generate(case.inputs()["source"])
outside = model.generate(case.inputs()["source"])
found["generate"] = [hypotheses.tokens.tolist() for hypotheses in (inside, outside)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def replicas():
    """For each layer how far two replicas' weights end from one's, and how far these have moved."""
    completed = subprocess.run(
        [sys.executable, "-c", REPLICAS, str(TABLE)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout.splitlines()[-1])


@pytest.mark.nightly
def test_two_replicas_are_one(case, tensorflow, request):
    apart, moved = request.getfixturevalue("replicas")[request.node.callspec.params["case"]]
    if moved is None:
        pytest.skip(NO_WEIGHTS)
    assert apart < 1e-5 and moved > 1e-3


@pytest.mark.nightly
def test_in_the_scope_of_a_strategy_generate_returns_each_row_once(tensorflow, replicas):
    inside, outside = replicas["generate"]
    assert inside == outside and len(inside) == 2
