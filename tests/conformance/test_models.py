"""The Keras contract that every model keeps, alone and inside a model of somebody else."""

import keras
import numpy as np
import pytest

from keras_transformer import models
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenLoss

to_numpy = keras.ops.convert_to_numpy


def as_float32(x):
    return to_numpy(keras.ops.cast(x, "float32"))


def close(found, expected):
    np.testing.assert_allclose(as_float32(found), as_float32(expected), rtol=1e-4, atol=1e-4)


@pytest.fixture
def model(model_case, randomize):
    return randomize(model_case.make(dtype="float32"), scale=0.3)


def test_every_model_is_in_the_table(model_table):
    # An ensemble has no inputs, weights or configuration of its own. `Seq2Seq` is a base class.
    assert {name.split()[0] for name in model_table} == set(models.__all__) - {"Ensemble", "Seq2Seq", "mask_tokens"}
    for name, case in model_table.items():
        assert type(case.make()) is getattr(models, name.split()[0])


def test_get_config_round_trip(model_case):
    model = model_case.make(dtype="mixed_bfloat16")
    copy = type(model).from_config(model.get_config())
    assert copy.get_config() == model.get_config() and copy.dtype_policy == model.dtype_policy
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in model.weights]


def test_save_and_load(model, model_case, tmp_path):
    model.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras")(model_case.inputs()), model(model_case.inputs()))


def test_weights_alone_are_saved_and_loaded(model, model_case, tmp_path):
    model.save_weights(tmp_path / "all.weights.h5")
    other = model_case.make(dtype="float32")
    assert np.abs(to_numpy(other(model_case.inputs())) - to_numpy(model(model_case.inputs()))).max() > 1e-3
    other.load_weights(tmp_path / "all.weights.h5")
    close(other(model_case.inputs()), model(model_case.inputs()))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_is_finite_and_keeps_float32_weights(model_case, policy):
    model = model_case.make(dtype=policy)
    assert np.isfinite(as_float32(model(model_case.inputs()))).all()
    assert {weight.dtype for weight in model.trainable_weights} == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_compilation_gives_the_same(model, model_case, jit_compile):
    model.compile(jit_compile=jit_compile)
    close(model.predict_on_batch(model_case.inputs()), model(model_case.inputs()))


def test_a_tf_function_gives_the_same(model, model_case, tensorflow):
    specs = keras.tree.map_structure(lambda ids: tensorflow.TensorSpec((None, None), ids.dtype), model_case.inputs())
    traced = tensorflow.function(lambda inputs: model(inputs), input_signature=[specs])
    close(traced(model_case.inputs()), model(model_case.inputs()))
    for rows, length in ((0, 5), (0, 0), (2, 0)):
        inputs = keras.tree.map_structure(lambda ids, rows=rows: ids[:rows], model_case.inputs(length))
        assert traced(inputs).shape[0] == rows


@pytest.mark.parametrize("length", [0, 1, 9])
def test_other_lengths_are_allowed(model, model_case, length):
    output = model(model_case.inputs(length))
    assert output.shape[0] == 2 and np.isfinite(to_numpy(output)).all()


@pytest.mark.parametrize("length", [0, 5])
def test_a_batch_without_rows_changes_nothing(model, model_case, length, few_steps):
    """Its loss and metrics are finite and change nothing."""
    inputs = keras.tree.map_structure(lambda ids: ids[:0], model_case.inputs(length))
    output = model(inputs)
    assert output.shape[0] == 0
    metrics = [kind() for kind in (TokenLoss, Perplexity, TokenAccuracy)]
    model.compile("sgd", LabelSmoothedCrossEntropy(), weighted_metrics=metrics, **few_steps)
    before = model.get_weights()
    found = model.train_on_batch(inputs, np.zeros(output.shape[:-1], "int32"), np.zeros((0,), "float32"))
    assert np.isfinite(found).all()
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_trainable_weight_has_a_gradient(model, model_case, few_steps):
    """One step of gradient descent moves all of them."""
    model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
    before = {weight.path: to_numpy(weight).copy() for weight in model.trainable_weights}
    model.train_on_batch(model_case.inputs(), np.ones(model(model_case.inputs()).shape, "float32"))
    still = [w.path for w in model.trainable_weights if np.array_equal(before[w.path], to_numpy(w))]
    # Softmax is invariant to a bias of the keys.
    assert before and [path for path in still if not path.endswith("key/bias")] == []


@keras.saving.register_keras_serializable(package="tests")
class ModelHost(keras.Model):
    """A subclassed model around a model."""

    def __init__(self, model, **kwargs):
        super().__init__(**kwargs)
        self.model, self.head = model, keras.layers.Dense(3)

    def call(self, inputs):
        return self.head(self.model(inputs))


@pytest.mark.slow
@pytest.mark.portable
def test_weights_of_a_subclassed_model_are_loaded_again(model, model_case, few_steps, tmp_path):
    hosts = [ModelHost(model), ModelHost(model_case.make(dtype="float32"))]
    inputs = model_case.inputs()
    for host in hosts:
        host.compile("adam", "mse", **few_steps)
        host.train_on_batch(inputs, np.zeros(host(inputs).shape, "float32"))
    one, other = hosts
    one.save_weights(tmp_path / "all.weights.h5")
    assert np.abs(as_float32(one(inputs)) - as_float32(other(inputs))).max() > 1e-3
    other.load_weights(tmp_path / "all.weights.h5")
    close(other(inputs), one(inputs))


def test_a_functional_model_is_saved_and_loaded(model, model_case, tmp_path):
    inputs = model_case.symbolic()
    around = keras.Model(inputs, keras.layers.Dense(3)(model(inputs)))
    around.save(tmp_path / "model.keras")
    close(keras.saving.load_model(tmp_path / "model.keras")(model_case.inputs()), around(model_case.inputs()))


@pytest.mark.portable
def test_a_frozen_sub_layer_stays_as_it_is(model, model_case, few_steps, tmp_path):
    part = next(layer for layer in model.layers if hasattr(layer, "layers"))  # The stack.
    part.trainable = False
    frozen, before = {weight.path for weight in part.weights}, {w.path: to_numpy(w).copy() for w in model.weights}
    model.compile("sgd", "mse", **few_steps)
    model.train_on_batch(model_case.inputs(), np.ones(model(model_case.inputs()).shape, "float32"))
    moved = {weight.path for weight in model.weights if not np.array_equal(before[weight.path], to_numpy(weight))}
    assert frozen and moved and not frozen & moved
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    trainable = [weight.path for weight in model.trainable_weights]
    assert [weight.path for weight in loaded.trainable_weights] == trainable and not frozen & {*trainable}
    part.trainable = True
    part.layers[0].trainable = False
    trainable = [weight.path for weight in model.trainable_weights]
    assert not {weight.path for weight in part.layers[0].weights} & {*trainable}
    assert [weight.path for weight in type(model).from_config(model.get_config()).trainable_weights] == trainable
    model.trainable = False
    assert type(model).from_config(model.get_config()).trainable_weights == []
