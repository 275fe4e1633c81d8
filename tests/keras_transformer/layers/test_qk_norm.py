import keras
import numpy as np
import pytest

from keras_transformer.layers import QKNorm

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
BATCH, HEADS, KV_HEADS, LENGTH, D_K = 2, 3, 1, 7, 5


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


QUERY, KEY = normal(BATCH, HEADS, LENGTH, D_K), normal(BATCH, KV_HEADS, LENGTH, D_K, seed=1)


@pytest.mark.parametrize("epsilon", [1e-6, 0.7])
def test_is_the_formula(randomize, epsilon):
    scheme = QKNorm(epsilon)
    scheme.build(QUERY.shape)
    np.testing.assert_array_equal(to_numpy(scheme.query_scale), np.ones(D_K))
    scales = [to_numpy(weight) for weight in randomize(scheme).weights]
    assert [scale.shape for scale in scales] == [(D_K,)] * 2
    results = scheme.process_heads(QUERY, KEY, np.arange(LENGTH))
    for ours, x, scale in zip(results, (QUERY, KEY), scales, strict=True):
        expected = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon) * scale
        np.testing.assert_allclose(to_numpy(ours), expected, atol=1e-5)


def test_the_squares_of_large_heads_do_not_overflow_float16():
    scheme = QKNorm(dtype="float16")
    scheme.build(QUERY.shape)
    query, _ = scheme.process_heads(keras.ops.cast(1000 * QUERY, "float16"), keras.ops.cast(KEY, "float16"), None)
    expected = QUERY / np.sqrt((QUERY**2).mean(axis=-1, keepdims=True))
    np.testing.assert_allclose(to_numpy(keras.ops.cast(query, "float32")), expected, atol=5e-3)


def test_a_bad_epsilon_is_refused():
    with pytest.raises(ValueError, match="`epsilon` must be positive.*Received: epsilon=0"):
        QKNorm(0)
