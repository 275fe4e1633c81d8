import math

import keras
import numpy as np
import pytest

from keras_transformer.layers import FeedForward

to_numpy = keras.ops.convert_to_numpy
X = np.random.default_rng(0).normal(size=(2, 5, 7)).astype("float32")


@pytest.fixture
def layer(randomize):
    layer = FeedForward(d_model=11, d_ff=13)
    layer.build((None, None, 7))
    return randomize(layer)


def test_is_equation_2(layer, reference):
    np.testing.assert_allclose(to_numpy(layer(X)), reference.feed_forward(layer, X.astype("float64")), atol=1e-5)


def test_each_position_is_computed_alike(layer):
    whole = to_numpy(layer(X))
    np.testing.assert_allclose(to_numpy(layer(X[:, 3:4])), whole[:, 3:4], atol=1e-6)
    np.testing.assert_allclose(to_numpy(layer(X[0, 3][None])), whole[:1, 3], atol=1e-6)


def test_activation_by_name_and_as_callable():
    tanh = FeedForward(11, 13, activation=keras.ops.tanh, use_bias=False)
    tanh.build(X.shape)
    expected = np.tanh(X @ tanh.inner.kernel.numpy()) @ tanh.outer.kernel.numpy()
    np.testing.assert_allclose(to_numpy(tanh(X)), expected, atol=1e-5)
    named = FeedForward(11, 13, activation="tanh", use_bias=False)
    named.build(X.shape)
    named.set_weights(tanh.get_weights())
    np.testing.assert_allclose(to_numpy(named(X)), expected, atol=1e-5)
    copy = FeedForward.from_config(named.get_config())
    assert copy.activation is keras.activations.tanh


@keras.saving.register_keras_serializable(package="tests")
def cube(x):
    return x * x * x


@pytest.mark.parametrize("activation", [cube, "tests>cube"])
@pytest.mark.parametrize("gated", [False, True])
def test_a_registered_function_or_its_name_is_an_activation(activation, gated):
    layer = FeedForward(11, 13, activation=activation, gated=gated, use_bias=False)
    copy = FeedForward.from_config(layer.get_config())
    assert copy.activation is cube
    copy.build(X.shape)
    inner, outer, *gate = (to_numpy(weight) for weight in copy.weights)
    hidden = (X @ gate[0]) ** 3 * (X @ inner) if gated else (X @ inner) ** 3
    np.testing.assert_allclose(to_numpy(copy(X)), hidden @ outer, atol=1e-5)


def test_an_unknown_activation_is_refused():
    for name in ("reul", "tests>quartic"):
        with pytest.raises(ValueError, match=f"activation.*{name}"):
            FeedForward(11, 13, activation=name)


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_gate_multiplies_the_inner_activations(use_bias, randomize, reference):
    layer = FeedForward(11, 13, activation="silu", gated=True, use_bias=use_bias)
    layer.build((None, None, 7))
    randomize(layer)
    assert len(layer.weights) == (6 if use_bias else 3)
    x = X.astype("float64")
    gate = reference.dense(layer.gate, x)
    expected = reference.dense(layer.outer, gate / (1 + np.exp(-gate)) * reference.dense(layer.inner, x))
    np.testing.assert_allclose(to_numpy(layer(X)), expected, atol=1e-5)


def test_a_gate_leaves_the_plain_layer_as_it_is():
    """With a gate of ones and no activation, the layer is the plain one. The paths of its weights stay."""
    plain, gated = (FeedForward(11, 13, activation="linear", gated=gated, name="layer") for gated in (False, True))
    for layer in (plain, gated):
        layer.build(X.shape)
    zeros, ones = np.zeros((7, 13)), np.ones(13)
    gated.set_weights([*plain.get_weights(), zeros, ones])
    np.testing.assert_allclose(to_numpy(gated(X)), to_numpy(plain(X)), atol=1e-6)
    paths = [weight.path for weight in plain.weights]
    assert paths == [f"layer/{name}" for name in ("inner/kernel", "inner/bias", "outer/kernel", "outer/bias")]
    assert [weight.path for weight in gated.weights] == [*paths, "layer/gate/kernel", "layer/gate/bias"]


def test_gradients_of_the_gate(few_steps):
    """One step of gradient descent on the sum of the outputs, with the product rule written out."""
    inputs = keras.Input((7,))
    layer = FeedForward(1, 13, activation="sigmoid", gated=True, use_bias=False)
    model = keras.Model(inputs, layer(inputs))
    inner, outer, gate = before = [weight.astype("float64") for weight in model.get_weights()]
    model.compile(keras.optimizers.SGD(1.0), loss=lambda y, p: keras.ops.sum(p), **few_steps)
    x = X[0]
    model.train_on_batch(x, np.ones((5, 1)))
    found = [old - new for old, new in zip(before, model.get_weights(), strict=True)]
    opened = 1 / (1 + np.exp(-(x @ gate)))
    of_product = outer[:, 0]
    expected = [
        x.T @ (opened * of_product),
        (opened * (x @ inner)).sum(axis=0)[:, None],
        x.T @ (opened * (1 - opened) * (x @ inner) * of_product),
    ]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 8e-7), ("float16", 2e-4), ("bfloat16", 1e-3)])
def test_gelu_tanh_is_the_approximation(dtype, atol):
    layer = FeedForward(11, 13, activation="gelu_tanh", dtype=dtype)
    x = keras.ops.cast(np.linspace(-7, 7, 281), dtype)
    found = to_numpy(keras.ops.cast(layer.inner.activation(x), "float32"))
    x = to_numpy(keras.ops.cast(x, "float32")).astype("float64")
    expected = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(found, expected, rtol=0.03 if dtype != "float32" else 1e-6, atol=atol)
    assert layer.get_config()["activation"] == "gelu_tanh"


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 8e-7), ("float16", 2e-4), ("bfloat16", 1e-3)])
def test_gelu_is_exact(dtype, atol):
    layer = FeedForward(11, 13, activation="gelu", dtype=dtype)
    x = keras.ops.cast(np.linspace(-7, 7, 281), dtype)
    found = to_numpy(keras.ops.cast(layer.inner.activation(x), "float32"))
    expected = [0.5 * value * math.erfc(-value / math.sqrt(2)) for value in to_numpy(keras.ops.cast(x, "float32"))]
    np.testing.assert_allclose(found, expected, rtol=0.01 if dtype != "float32" else 1e-6, atol=atol)
    assert FeedForward.from_config(layer.get_config()).activation is keras.activations.gelu


def test_a_layer_without_biases_has_two_weights():
    layer = FeedForward(11, 13, use_bias=False)
    layer.build(X.shape)
    assert len(layer.weights) == 2


def test_dropout_falls_on_the_inner_activations():
    layer = FeedForward(11, 61, dropout=0.5, use_bias=False)
    still, trained = to_numpy(layer(X, training=False)), to_numpy(layer(X, training=True))
    np.testing.assert_allclose(to_numpy(layer(X)), still, atol=1e-6)
    assert np.abs(still - trained).max() > 1e-3
    # Dropout of the output would leave zeros; dropout of the inner activations does not.
    assert (trained == 0).mean() < 0.1


def test_dropout_falls_on_the_product_with_the_gate():
    layer = FeedForward(53, 53, "linear", dropout=0.5, use_bias=False, gated=True, seed=1)
    layer.build(X.shape)
    inner, _, gate = layer.get_weights()
    layer.outer.kernel.assign(np.eye(53))
    trained, product = to_numpy(layer(X, training=True)), (X @ inner) * (X @ gate)
    kept = trained != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(trained[kept], 2 * product[kept], atol=1e-5)


def test_symbolic_shape_equals_eager_shape(layer):
    assert tuple(layer(keras.Input((None, 7))).shape) == (None, None, 11)
    assert layer(X).shape == (2, 5, 11)


def test_the_mask_passes_through(layer):
    embedded = keras.layers.Embedding(7, 7, mask_zero=True)(np.array([[3, 0]]))
    assert to_numpy(layer(embedded)._keras_mask).tolist() == [[True, False]]


@pytest.mark.parametrize("name", ["d_model", "d_ff"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}`.*Received: {name}=-1"):
        FeedForward(**{"d_model": 3, "d_ff": 3, name: -1})
