import keras
import numpy as np
import pytest

from keras_transformer.layers import ResidualConnection

to_numpy = keras.ops.convert_to_numpy
X = np.random.default_rng(0).normal(loc=2, size=(2, 5, 7)).astype("float32")


@pytest.fixture(params=[False, True], ids=["post_norm", "norm_first"])
def block(request, randomize):
    block = ResidualConnection(keras.layers.Dense(7, name="sublayer"), norm_first=request.param, epsilon=1e-3)
    block.build(X.shape)
    return randomize(block)


class TwoOutputs(keras.layers.Layer):
    """Returns what it was given besides its input."""

    def call(self, inputs, factor, extra=None):
        return inputs * factor, extra


def test_is_the_formula(block, reference):
    expected = reference.residual(block, X.astype("float64"), lambda x: reference.dense(block.sublayer, x))
    np.testing.assert_allclose(to_numpy(block(X)), expected, atol=1e-5)


def test_post_norm_output_is_normalised_and_norm_first_is_a_sum():
    zero = keras.layers.Dense(7, kernel_initializer="zeros")
    normed = to_numpy(ResidualConnection(zero, norm_first=False)(X))
    np.testing.assert_allclose(normed.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(normed.std(-1), 1, atol=1e-4)
    zero = keras.layers.Dense(7, kernel_initializer="zeros")
    np.testing.assert_allclose(to_numpy(ResidualConnection(zero, norm_first=True)(X)), X, atol=1e-6)


def test_dropout_falls_on_the_sublayer_alone():
    ones = keras.layers.Dense(7, kernel_initializer="zeros", bias_initializer="ones")
    block = ResidualConnection(ones, dropout=0.5, norm_first=True)
    np.testing.assert_allclose(to_numpy(block(X)), X + 1, atol=1e-5)
    added = to_numpy(block(X, training=True)) - X
    np.testing.assert_allclose(added, 2 * (added > 1), atol=1e-5)
    assert 0 < (added > 1).mean() < 1


@pytest.mark.parametrize("norm_first", [False, True])
def test_further_outputs_and_arguments_pass_through(norm_first):
    block = ResidualConnection(TwoOutputs(), norm_first=norm_first)
    factor, extra = keras.ops.convert_to_tensor(0.0), keras.ops.ones((3,))
    output, rest = block(X, factor, extra=extra)
    assert output.shape == X.shape
    np.testing.assert_allclose(to_numpy(rest), np.ones(3))
    if norm_first:
        np.testing.assert_allclose(to_numpy(output), X, atol=1e-6)


def test_symbolic_shape_equals_eager_shape(block):
    assert tuple(block(keras.Input((None, 7))).shape) == (None, None, 7)
    assert block(X).shape == X.shape


def test_the_mask_passes_through(block):
    embedded = keras.layers.Embedding(7, 7, mask_zero=True)(np.array([[3, 0]]))
    assert to_numpy(block(embedded)._keras_mask).tolist() == [[True, False]]


def test_a_built_sublayer_is_kept():
    dense = keras.layers.Dense(7)
    dense.build((None, 7))
    kernel = dense.kernel
    ResidualConnection(dense)(X)
    assert dense.kernel is kernel
