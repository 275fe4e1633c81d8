from collections import Counter

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from keras_transformer.export.onnx import _convert
from keras_transformer.layers import MultiHeadAttention

WIDTH = 12


def exported(layer, *shape):
    """The layer as an ONNX model of one input."""
    signature = [tf.TensorSpec(shape, tf.float32, name="x")]
    return _convert(lambda x: (layer(x),), signature, {"x": ("batch", *shape[1:])}, {"y": ("batch", *shape[1:])})


def operators(model):
    return Counter(node.op_type for node in model.graph.node)


def run(model, x):
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(["y"], {"x": x})[0]


@pytest.fixture
def x():
    return np.random.default_rng(2).normal(2.0, 3.0, (5, WIDTH)).astype("float32")


@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
def test_layer_normalization_is_one_operator(x, randomize, epsilon):
    layer = keras.layers.LayerNormalization(epsilon=epsilon)
    layer.build((None, WIDTH))
    randomize(layer)
    model = exported(layer, None, WIDTH)
    assert operators(model) == {"LayerNormalization": 1}
    np.testing.assert_allclose(run(model, x), layer(x), atol=1e-5)


class Other(keras.layers.Layer):
    """What only looks like a normalisation: its mean is not its input's own."""

    def build(self, shape):
        self.gamma, self.beta = (self.add_weight((1, WIDTH), name=name) for name in ("gamma", "beta"))

    def call(self, x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        factor = tf.math.rsqrt(variance + 1e-3) * self.gamma
        return 2.0 * x * factor + (-mean * factor + self.beta)


def test_another_formula_stays(x, randomize):
    layer = Other()
    layer.build((None, WIDTH))
    randomize(layer)
    model = exported(layer, None, WIDTH)
    assert "LayerNormalization" not in operators(model)
    np.testing.assert_allclose(run(model, x), layer(x), atol=1e-5)


class Projections(keras.layers.Layer):
    """Query, key and value of attention, which are of unlike widths."""

    def __init__(self, use_bias):
        super().__init__()
        sizes = {"d_k": 5, "d_v": 7} if use_bias else {"d_k": 3, "d_v": 3}
        self.attention = MultiHeadAttention(WIDTH, 2, use_bias=use_bias, **sizes)
        self.attention.build((None, WIDTH))

    def call(self, x):
        attention = self.attention
        query, (key, value) = attention.query_projection(x), attention.project(x)
        parts = [query * 2.0, *(tf.reshape(part, (-1, 2 * part.shape[-1])) for part in (key, value))]
        return tf.concat(parts, -1)[:, :WIDTH]


@pytest.mark.parametrize("use_bias", [True, False])
def test_products_of_one_matrix_are_one(x, randomize, use_bias):
    layer = randomize(Projections(use_bias))
    model = exported(layer, None, WIDTH)
    found = operators(model)
    assert (found["MatMul"], found["Split"], found["Add"]) == (1, 1, int(use_bias))
    np.testing.assert_allclose(run(model, x), layer(x), atol=1e-4)


def test_a_product_that_is_used_twice_keeps_its_own_bias(x, randomize):
    first, second = (keras.layers.Dense(WIDTH) for _ in range(2))

    class Both(keras.layers.Layer):
        def call(self, x):
            raw = tf.matmul(x, first.kernel)
            return raw * 2.0 + (raw + first.bias) * second(x)

    for dense in (first, second):
        dense.build((None, WIDTH))
        randomize(dense)
    model = exported(Both(), None, WIDTH)
    np.testing.assert_allclose(run(model, x), Both()(x), rtol=1e-4)
