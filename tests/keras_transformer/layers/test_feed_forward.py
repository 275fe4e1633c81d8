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
