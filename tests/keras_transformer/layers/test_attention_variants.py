"""Attention with fewer heads of keys and values, with another scale, a soft cap, or some biases."""

import keras
import numpy as np
import pytest

from keras_transformer.cache import KeyValue
from keras_transformer.layers import MultiHeadAttention, scaled_dot_product_attention

to_numpy = keras.ops.convert_to_numpy
BATCH, QUERIES, KEYS, HEADS, D_K, D_V, D_MODEL = 2, 5, 7, 6, 13, 11, 17
GROUPS = [1, 2, 3]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture
def make(randomize):
    """Makes a layer whose queries have width 19, values 23 and keys 29; or all `d_model` with `is_self_attention`."""

    def make(is_self_attention=False, **arguments):
        layer = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, **arguments)
        widths = [D_MODEL] if is_self_attention else [19, 23, 29]
        layer.build(*((None, None, width) for width in widths))
        return randomize(layer, scale=0.3)

    return make


def tensors(*arrays):
    return [keras.ops.convert_to_tensor(array) for array in arrays]


VARIANTS = {
    "one head": {"num_kv_heads": 1},
    "two heads": {"num_kv_heads": 2},
    "three heads": {"num_kv_heads": 3},
    "scale": {"scale": 1.0},
    "soft cap": {"soft_cap": 1.5},
    "all": {"num_kv_heads": 2, "scale": 0.7, "soft_cap": 2.0, "use_bias": ["value", "query"]},
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_each_variant_is_its_formula(variant, make, reference):
    layer = make(**variant)
    query, value, key = normal(BATCH, QUERIES, 19), normal(BATCH, KEYS, 23, seed=1), normal(BATCH, KEYS, 29, seed=2)
    mask = np.random.default_rng(3).random((BATCH, QUERIES, KEYS)) < 0.6
    mask[1, 2] = False
    result, weights = layer(query, value, key, attention_mask=mask, return_attention_scores=True)
    expected, expected_weights = reference.multi_head_attention(layer, query, value, key, mask)
    np.testing.assert_allclose(to_numpy(result), expected, atol=2e-5)
    np.testing.assert_allclose(to_numpy(weights), expected_weights, atol=1e-5)
    assert weights.shape == (BATCH, HEADS, QUERIES, KEYS)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_each_variant_is_another_function(variant, make):
    """With the weights that both have."""
    x, layer, plain = normal(BATCH, QUERIES, D_MODEL), make(True, **variant), make(True)
    if "num_kv_heads" not in variant:
        plain.set_weights(layer.get_weights())
    assert np.abs(to_numpy(layer(x)) - to_numpy(plain(x))).max() > 1e-2


def test_a_head_for_each_query_head_is_the_plain_layer_bit_for_bit():
    found = []
    for arguments in ({}, {"num_kv_heads": HEADS}):
        keras.utils.set_random_seed(3)
        layer = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, dropout=0.3, **arguments)
        x = normal(BATCH, QUERIES, D_MODEL)
        found.append([*map(to_numpy, (layer(x), layer(x, use_causal_mask=True, training=True), *layer.weights))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("num_kv_heads", GROUPS)
def test_groups_equal_copies_of_the_keys_and_values(num_kv_heads):
    query, key = normal(BATCH, HEADS, QUERIES, D_K), normal(BATCH, num_kv_heads, KEYS, D_K, seed=1)
    value = normal(BATCH, num_kv_heads, KEYS, D_V, seed=2)
    mask = np.random.default_rng(3).random((BATCH, HEADS, QUERIES, KEYS)) < 0.5
    found = scaled_dot_product_attention(*tensors(query, key, value), mask)
    copies = [np.repeat(x, HEADS // num_kv_heads, axis=1) for x in (key, value)]
    expected = scaled_dot_product_attention(*tensors(query, *copies), mask)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)


def test_scores_stay_below_the_soft_cap(make):
    x = 100 * normal(BATCH, QUERIES, D_MODEL)
    _, weights = make(True, soft_cap=0.5)(x, return_attention_scores=True)
    weights = to_numpy(weights)
    assert 0.9 < np.log(weights.max(axis=-1) / weights.min(axis=-1)).max() <= 1.0001  # From -0.5 to 0.5.


@pytest.mark.parametrize("num_kv_heads", GROUPS)
@pytest.mark.parametrize("chunks", [[1] * KEYS, [3, 1, 1, 2], [KEYS]], ids=str)
def test_cached_equals_one_full_pass(num_kv_heads, chunks, make):
    layer, x = make(True, num_kv_heads=num_kv_heads, soft_cap=3.0), normal(BATCH, KEYS, D_MODEL)
    cache = layer.empty_cache(BATCH, KEYS)
    outputs, offset = [], 0
    for chunk in chunks:
        part = x[:, offset] if chunk == 1 else x[:, offset : offset + chunk]
        result, cache = layer(part, use_causal_mask=True, cache=cache, offset=offset)
        outputs.append(to_numpy(result).reshape(BATCH, chunk, D_MODEL))
        offset += chunk
    expected = to_numpy(layer(x, use_causal_mask=True))
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), expected, atol=1e-5)
    assert cache.key.shape == (BATCH, num_kv_heads, KEYS, D_K)
    assert cache.value.shape == (BATCH, num_kv_heads, KEYS, D_V)


@pytest.mark.parametrize("num_kv_heads", GROUPS)
@pytest.mark.parametrize("length", [None, 1, 3])
def test_beam_rows_share_their_sentences_memory(num_kv_heads, length, make):
    layer, beams = make(True, num_kv_heads=num_kv_heads), 4
    query = normal(BATCH * beams, *([] if length is None else [length]), D_MODEL)
    memory = normal(BATCH, KEYS, D_MODEL, seed=1)
    mask = np.array([[True] * 3 + [False] * 4, [True] * 7])
    projected = layer.project(keras.ops.convert_to_tensor(memory))
    assert projected.key.shape == (BATCH, num_kv_heads, KEYS, D_K)
    assert projected.value.shape == (BATCH, num_kv_heads, KEYS, D_V)
    result = layer(query, projected, value_mask=mask)
    assert result.shape == query.shape
    positions = query[:, None] if length is None else query
    expected = layer(positions, np.repeat(memory, beams, axis=0), value_mask=np.repeat(mask, beams, axis=0))
    np.testing.assert_allclose(to_numpy(result).reshape(expected.shape), to_numpy(expected), atol=1e-5)


def test_gradients_of_shared_keys_and_values_are_the_sums_over_their_group(make, few_steps):
    """Equal to those of a plain layer with a copy of the shared kernels for each query head."""
    grouped, plain = make(True, num_kv_heads=2, soft_cap=2.0), make(True, soft_cap=2.0)

    def copied(array, width):
        return np.repeat(array.reshape(*array.shape[:-1], 2, width), 3, axis=-2).reshape(*array.shape[:-1], -1)

    widths = {"key": D_K, "value": D_V}
    for part in ("query", "key", "value", "output"):
        one, other = (getattr(layer, f"{part}_projection") for layer in (grouped, plain))
        weights = one.get_weights()
        other.set_weights([copied(x, widths[part]) if part in widths else x for x in weights])
    x, steps = normal(BATCH, QUERIES, D_MODEL), []
    for layer in (grouped, plain):
        inputs = keras.Input((None, D_MODEL))
        model = keras.Model(inputs, layer(inputs))
        before = {weight.path.split("/", 1)[1]: to_numpy(weight).copy() for weight in layer.weights}
        model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
        model.train_on_batch(x, normal(BATCH, QUERIES, D_MODEL, seed=5))
        steps.append({w.path.split("/", 1)[1]: before[w.path.split("/", 1)[1]] - to_numpy(w) for w in layer.weights})
    for name, step in steps[0].items():
        other, width = steps[1][name], widths.get(name.split("/")[0])
        if width:
            other = other.reshape(*other.shape[:-1], 2, 3, width).sum(axis=-2).reshape(step.shape)
        np.testing.assert_allclose(step, other, atol=1e-5, err_msg=name)
        assert name == "key/bias" or np.abs(step).max() > 1e-3


def test_the_gradient_of_the_soft_cap():
    """A softmax over two keys: the score s of the first is c tanh(s / c), whose derivative is 1 - tanh²(s / c)."""
    cap, query, keys = 1.5, 0.8, np.array([1.7, 0.0])
    inputs = keras.Input((1,))
    attended = keras.layers.Lambda(
        lambda x: scaled_dot_product_attention(
            keras.ops.reshape(x, (-1, 1, 1, 1)),
            keras.ops.convert_to_tensor(keys.reshape(1, 1, 2, 1), "float32"),
            keras.ops.convert_to_tensor(np.array([1.0, 0.0]).reshape(1, 1, 2, 1), "float32"),
            scale=1.0,
            soft_cap=cap,
        )[0][:, 0, 0],
        output_shape=(1,),
    )
    dense = keras.layers.Dense(1, use_bias=False)
    model = keras.Model(inputs, attended(dense(inputs)))
    dense.set_weights([np.array([[query]])])
    model.compile(keras.optimizers.SGD(1.0), loss=lambda y, p: keras.ops.sum(p))
    model.train_on_batch(np.ones((1, 1)), np.ones((1, 1)))
    bounded = cap * np.tanh(query * keys[0] / cap)
    weight = 1 / (1 + np.exp(-bounded))
    expected = weight * (1 - weight) * (1 - (bounded / cap) ** 2) * keys[0]
    np.testing.assert_allclose(query - dense.get_weights()[0], [[expected]], rtol=1e-4)


@pytest.mark.parametrize("names", [["query", "key", "value"], ["output"], [], ("value", "key")], ids=str)
def test_projections_may_have_biases_one_by_one(names, make):
    layer = make(True, use_bias=names)
    found = {weight.path.split("/")[-2] for weight in layer.weights if weight.name == "bias"}
    assert found == {*names} and len(layer.weights) == 4 + len(names)
    copy = MultiHeadAttention.from_config(layer.get_config())
    copy.build((None, None, D_MODEL))
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in layer.weights]
    assert copy.get_config() == layer.get_config()


def test_configurations_of_earlier_versions_are_loaded():
    config = MultiHeadAttention(D_MODEL, HEADS, D_K, D_V).get_config()
    earlier = ("name", "trainable", "dtype", "d_model", "num_heads", "d_k", "d_v", "dropout", "use_bias")
    assert MultiHeadAttention.from_config({name: config[name] for name in earlier}).get_config() == config


def test_weights_have_the_paths_of_the_plain_layer(make):
    paths = [[weight.path.split("/", 1)[1] for weight in make(True, **v).weights] for v in ({}, {"num_kv_heads": 2})]
    assert paths[0] == paths[1]


def test_any_lengths_and_batches_in_a_traced_function(make, tensorflow):
    layer = make(True, num_kv_heads=2)
    spec = tensorflow.TensorSpec((None, None, D_MODEL))
    traced = tensorflow.function(layer, input_signature=[spec])
    for shape in ((BATCH, QUERIES), (3, 1), (0, 4), (2, 0)):
        x = normal(*shape, D_MODEL)
        np.testing.assert_allclose(traced(x), layer(x), atol=1e-5)


def test_a_traced_function_need_not_know_the_heads_of_its_cache(make, tensorflow):
    layer, x = make(True), normal(BATCH, QUERIES, D_MODEL)
    specs = [
        tensorflow.TensorSpec((None, D_MODEL)),
        *[tensorflow.TensorSpec((None, None, None, d)) for d in (D_K, D_V)],
    ]

    def step(x, key, value):
        return layer(x, KeyValue(key, value))

    memory = layer.project(keras.ops.convert_to_tensor(x))
    expected = step(x[:, 0], *memory)
    np.testing.assert_allclose(tensorflow.function(step, input_signature=specs)(x[:, 0], *memory), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_kv_heads": 4}, "`num_heads`.*multiple of `num_kv_heads`.*Received: num_heads=6, num_kv_heads=4"),
        ({"num_kv_heads": 0}, "`num_kv_heads`.*Received: num_kv_heads=0"),
        ({"num_kv_heads": 12}, "Received: num_heads=6, num_kv_heads=12"),
        ({"scale": 0}, "`scale`.*Received: scale=0"),
        ({"soft_cap": -1.0}, "`soft_cap`.*Received: soft_cap=-1.0"),
        ({"use_bias": ["query", "kye"]}, "`use_bias`.*Received: use_bias='kye'"),
        ({"use_bias": "query"}, "`use_bias` must be a bool or a list.*Received: use_bias='query'"),
        ({"seed": 0.5}, "`seed`.*Received: seed=0.5"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(12, 6, **arguments)


def test_the_function_refuses_heads_that_do_not_divide():
    query, key = tensors(normal(1, 5, 2, 3), normal(1, 2, 2, 3))
    with pytest.raises(ValueError, match="multiple.*Received: 5 query heads, 2 key and value heads"):
        scaled_dot_product_attention(query, key, key)
