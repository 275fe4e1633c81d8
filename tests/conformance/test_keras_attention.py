"""`MultiHeadAttention` beside the attention layers of Keras, with the same weights."""

import keras
import numpy as np
import pytest

from keras_transformer.layers import MultiHeadAttention

to_numpy = keras.ops.convert_to_numpy
BATCH, QUERY, KEY, D_MODEL, HEADS, D_K, D_V = 2, 5, 7, 22, 3, 13, 11


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


QUERIES, VALUES, KEYS = normal(1, BATCH, QUERY, D_MODEL), normal(2, BATCH, KEY, 17), normal(3, BATCH, KEY, 19)
CALLS = {
    "no mask": {},
    "attention mask": {"attention_mask": np.random.default_rng(4).random((BATCH, QUERY, KEY)) < 0.6},
    "value mask": {"value_mask": np.arange(KEY) < np.array([[4], [7]])},
    "key mask": {"key_mask": np.arange(KEY) > np.array([[2], [0]])},
    "causal": {"use_causal_mask": True},
    "all": {
        "attention_mask": np.random.default_rng(5).random((BATCH, QUERY, KEY)) < 0.8,
        "value_mask": np.arange(KEY) < np.array([[6], [7]]),
        "use_causal_mask": True,
    },
}
for call in CALLS.values():  # Each query may attend to something: Keras then attends to all.
    if "attention_mask" in call:
        call["attention_mask"][..., 0] = True


@pytest.fixture(params=[True, False], ids=["biases", "no biases"])
def pair(request, randomize, copy_weights):
    """Ours and Keras's."""
    ours = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, use_bias=request.param)
    theirs = keras.layers.MultiHeadAttention(HEADS, D_K, D_V, use_bias=request.param)
    ours.build(QUERIES.shape, VALUES.shape, KEYS.shape)
    theirs.build(QUERIES.shape, VALUES.shape, KEYS.shape)
    copy_weights(randomize(ours, scale=0.3), theirs)
    return ours, theirs


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_outputs_and_weights_are_equal(pair, call):
    found = [layer(QUERIES, VALUES, KEYS, **call, return_attention_scores=True) for layer in pair]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), atol=1e-5)


def test_implicit_masks_are_equal(pair):
    masked = [keras.layers.Masking()(np.where((np.arange(KEY) < 4)[:, None], x, 0)) for x in (VALUES, KEYS)]
    # With the scores, for on JAX Keras's attention without them wants d_k and d_v to be equal.
    ours, theirs = (to_numpy(layer(QUERIES, *masked, return_attention_scores=True)[0]) for layer in pair)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(ours - to_numpy(pair[0](QUERIES, *map(to_numpy, masked)))).max() > 1e-3


#: Of the width of the queries, as Keras requires in a functional model.
WIDE_VALUES = normal(7, BATCH, KEY, D_MODEL)
GROUP_HEADS = 6


@pytest.fixture(params=[1, 2, 3], ids="{} groups".format)
def grouped(request, randomize):
    """Ours and Keras's, with groups of query heads."""
    ours = MultiHeadAttention(D_MODEL, GROUP_HEADS, D_K, D_K, num_kv_heads=request.param)
    theirs = keras.layers.GroupQueryAttention(D_K, GROUP_HEADS, request.param)
    for layer in (ours, theirs):
        layer.build(QUERIES.shape, WIDE_VALUES.shape, KEYS.shape)
    randomize(ours, scale=0.3)
    # In the order of the names of their weights: query, key, value, output.
    for weight, target in zip(ours.weights, theirs.weights, strict=True):
        target.assign(to_numpy(weight).reshape(target.shape))
    return ours, theirs


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_grouped_attention_is_equal(grouped, call):
    found = [layer(QUERIES, WIDE_VALUES, KEYS, **call, return_attention_scores=True) for layer in grouped]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(to_numpy(ours), to_numpy(theirs), atol=1e-5)


def test_gradients_of_grouped_attention_are_equal(grouped, few_steps):
    steps = []
    for layer in grouped:
        inputs = [keras.Input(x.shape[1:]) for x in (QUERIES, WIDE_VALUES, KEYS)]
        # With the scores, because Keras computes attention without them by another kernel.
        output, scores = layer(*inputs, use_causal_mask=True, return_attention_scores=True)
        model = keras.Model(inputs, output + 0 * keras.ops.sum(scores))
        before = [to_numpy(weight).copy() for weight in layer.weights]
        model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
        model.train_on_batch([QUERIES, WIDE_VALUES, KEYS], normal(6, BATCH, QUERY, D_MODEL))
        steps.append([old - to_numpy(weight) for old, weight in zip(before, layer.weights, strict=True)])
    for ours, theirs in zip(*steps, strict=True):
        np.testing.assert_allclose(ours, theirs.reshape(ours.shape), atol=1e-4)
    assert max(np.abs(step).max() for step in steps[0]) > 1e-2
