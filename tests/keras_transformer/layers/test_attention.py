import keras
import numpy as np
import pytest

from keras_transformer.layers import MultiHeadAttention, scaled_dot_product_attention

to_numpy = keras.ops.convert_to_numpy
BATCH, QUERIES, KEYS, HEADS, D_K, D_V, D_MODEL = 2, 5, 7, 3, 13, 11, 17
HALF = ["mixed_float16", "mixed_bfloat16"]


def normal(*shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype("float32")


@pytest.fixture
def layer(randomize):
    """Queries of width 19, values of width 23, keys of width 29."""
    layer = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V)
    layer.build((None, None, 19), (None, None, 23), (None, None, 29))
    return randomize(layer, scale=0.3)


@pytest.fixture
def self_attention(randomize):
    layer = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V)
    layer.build((None, None, D_MODEL))
    return randomize(layer, scale=0.3)


@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_product_attention_is_equation_1(masked, reference):
    query, key = normal(BATCH, HEADS, QUERIES, D_K), normal(BATCH, HEADS, KEYS, D_K, seed=1)
    value = normal(BATCH, HEADS, KEYS, D_V, seed=2)
    mask = np.random.default_rng(3).random((BATCH, 1, QUERIES, KEYS)) < 0.5 if masked else None
    expected, expected_weights = reference.attention(query, key, value, mask)
    result, weights = scaled_dot_product_attention(*map(keras.ops.convert_to_tensor, (query, key, value)), mask)
    np.testing.assert_allclose(to_numpy(result), expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(weights), expected_weights, atol=1e-6)


def test_multi_head_attention_is_the_formula(layer, reference):
    query, value, key = normal(BATCH, QUERIES, 19), normal(BATCH, KEYS, 23, seed=1), normal(BATCH, KEYS, 29, seed=2)
    mask = np.random.default_rng(3).random((BATCH, QUERIES, KEYS)) < 0.6
    result, weights = layer(query, value, key, attention_mask=mask, return_attention_scores=True)
    expected, expected_weights = reference.multi_head_attention(layer, query, value, key, mask)
    np.testing.assert_allclose(to_numpy(result), expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(weights), expected_weights, atol=1e-6)
    assert weights.shape == (BATCH, HEADS, QUERIES, KEYS)


def test_key_is_the_value_by_default_and_value_the_query(self_attention, reference):
    x, memory = normal(BATCH, QUERIES, D_MODEL), normal(BATCH, KEYS, D_MODEL, seed=1)
    for result, expected in (
        (self_attention(x), reference.multi_head_attention(self_attention, x, x)),
        (self_attention(x, memory), reference.multi_head_attention(self_attention, x, memory)),
    ):
        np.testing.assert_allclose(to_numpy(result), expected[0], atol=1e-5)


def test_a_layer_without_biases_has_four_weights(randomize, reference):
    layer = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, use_bias=False)
    layer.build((None, None, D_MODEL))
    assert len(randomize(layer).weights) == 4
    x = normal(BATCH, QUERIES, D_MODEL)
    np.testing.assert_allclose(to_numpy(layer(x)), reference.multi_head_attention(layer, x, x)[0], atol=1e-4)


def test_default_head_widths_divide_the_model_width():
    layer = MultiHeadAttention(15, 3)
    assert (layer.d_k, layer.d_v) == (5, 5)
    assert (MultiHeadAttention(15, 3, d_v=7).d_k, MultiHeadAttention(15, 3, d_v=7).d_v) == (5, 7)


def test_symbolic_shapes_equal_eager_shapes(layer):
    inputs = [keras.Input((None, width)) for width in (19, 23, 29)]
    outputs = layer(*inputs, return_attention_scores=True)
    assert [tuple(output.shape) for output in outputs] == [(None, None, D_MODEL), (None, HEADS, None, None)]
    model = keras.Model(inputs, outputs)
    arrays = normal(BATCH, QUERIES, 19), normal(BATCH, KEYS, 23), normal(BATCH, KEYS, 29)
    eager = layer(*arrays, return_attention_scores=True)
    for ours, functional in zip(eager, model(list(arrays)), strict=True):
        np.testing.assert_allclose(to_numpy(functional), to_numpy(ours), atol=1e-6)
    assert eager[0].shape == (BATCH, QUERIES, D_MODEL)
    static = layer(*(keras.Input(batch_shape=array.shape) for array in arrays))
    assert tuple(static.shape) == (BATCH, QUERIES, D_MODEL)
    assert layer.compute_output_shape((2, 5, 19), (2, 7, 23), (2, 7, 29)) == (2, 5, D_MODEL)


def test_dropout_falls_on_the_weights_in_training_only():
    layer = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, dropout=0.5)
    x = normal(BATCH, QUERIES, D_MODEL)
    still, weights = layer(x, return_attention_scores=True, training=False)
    again, trained_weights = layer(x, return_attention_scores=True, training=True)
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(still), atol=1e-6)
    assert np.abs(to_numpy(again) - to_numpy(still)).max() > 1e-3
    np.testing.assert_allclose(to_numpy(trained_weights), to_numpy(weights), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("policy", HALF)
def test_softmax_is_float32_in_mixed_precision(policy, causal):
    layer = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, dtype=policy)
    result, weights = layer(normal(BATCH, 211, D_MODEL), use_causal_mask=causal, return_attention_scores=True)
    assert keras.backend.standardize_dtype(result.dtype) == policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_allclose(to_numpy(weights).sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("policy", HALF)
def test_mixed_precision_is_near_float32(policy, self_attention, reference):
    half = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, dtype=policy)
    x = normal(BATCH, QUERIES, D_MODEL, scale=0.3)
    half.build(x.shape)
    half.set_weights(self_attention.get_weights())
    expected = reference.multi_head_attention(self_attention, x, x, mask=np.tri(QUERIES, dtype=bool))[0]
    result = to_numpy(keras.ops.cast(half(x, use_causal_mask=True), "float32"))
    np.testing.assert_allclose(result, expected, atol=0.05 if policy == "mixed_bfloat16" else 0.01)


def test_frozen_layer_has_nothing_to_train(self_attention):
    assert len(self_attention.trainable_weights) == 8
    self_attention.trainable = False
    assert self_attention.trainable_weights == []
    assert len(self_attention.weights) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_model": 0}, "`d_model`.*Received: d_model=0"),
        ({"num_heads": -1}, "`num_heads`.*Received: num_heads=-1"),
        ({"d_k": 0}, "`d_k`.*Received: d_k=0"),
        ({"d_model": 17}, "`d_model`.*Received: d_model=17, num_heads=3"),
        ({"dropout": 1.5}, r"`dropout`.*Received: dropout=1.5"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"d_model": 12, "num_heads": 3, **arguments})
