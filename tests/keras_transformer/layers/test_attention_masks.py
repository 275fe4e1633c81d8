import keras
import numpy as np
import pytest

from keras_transformer.layers import MultiHeadAttention

to_numpy = keras.ops.convert_to_numpy
BATCH, QUERIES, KEYS, HEADS, D_MODEL = 2, 5, 7, 3, 17
POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def make(dtype="float32", dropout=0.0):
    layer = MultiHeadAttention(D_MODEL, HEADS, d_k=13, d_v=11, dropout=dropout, dtype=dtype)
    layer.build((None, None, D_MODEL))
    return layer


def output(result):
    """The attended values of any form of result, as float32 in NumPy."""
    result = result[0] if isinstance(result, tuple) else result
    return to_numpy(keras.ops.cast(result, "float32"))


def full_cache(layer):
    return layer.empty_cache(BATCH, QUERIES)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "path", [{}, {"training": True}, {"return_attention_scores": True}, {"cached": True}], ids=lambda path: str(path)
)
def test_the_future_never_leaks(policy, path):
    layer = make(policy, dropout=0.3 if "training" in path else 0.0)
    x = normal(BATCH, QUERIES, D_MODEL)
    changed = x.copy()
    changed[:, 3:] += 5 * normal(BATCH, QUERIES - 3, D_MODEL, seed=1)

    def run(x):
        if "training" in path:
            layer.weights_dropout.seed_generator.state.assign([1, 2])
        arguments = {"cache": full_cache(layer)} if "cached" in path else path
        return output(layer(x, use_causal_mask=True, **arguments))

    before, after = run(x), run(changed)
    assert np.array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).max() > 1e-2


@pytest.mark.parametrize("policy", POLICIES)
def test_masked_keys_never_matter(policy):
    layer = make(policy)
    query, memory = normal(BATCH, QUERIES, D_MODEL), normal(BATCH, KEYS, D_MODEL, seed=1)
    mask = np.array([[True] * 4 + [False] * 3, [False, True] * 3 + [True]])
    changed = np.where(mask[..., None], memory, 1e3).astype("float32")
    same = output(layer(query, memory, value_mask=mask))
    assert np.array_equal(same, output(layer(query, changed, value_mask=mask)))
    assert np.abs(same - output(layer(query, memory))).max() > 1e-2


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_with_nothing_to_attend_to_give_zeros(policy):
    layer = MultiHeadAttention(D_MODEL, HEADS, d_k=13, d_v=11, use_bias=False, dtype=policy)
    x = normal(BATCH, QUERIES, D_MODEL)
    mask = np.ones((BATCH, QUERIES, QUERIES), bool)
    mask[1, 2] = False
    result, weights = layer(x, attention_mask=mask, return_attention_scores=True)
    assert not output(result)[1, 2].any()
    assert not to_numpy(weights)[1, :, 2].any()
    whole = output(layer(x))
    mask[1, 2] = True
    rest = mask.all(-1) & ~((np.arange(BATCH) == 1)[:, None] & (np.arange(QUERIES) == 2))
    np.testing.assert_allclose(output(result)[rest], whole[rest], atol=2e-2 if policy != "float32" else 1e-6)
    masked = layer(x, x, value_mask=np.array([[True] * QUERIES, [False] * QUERIES]))
    assert not output(masked)[1].any() and output(masked)[0].any()


@pytest.mark.parametrize("shape", [(QUERIES, KEYS), (BATCH, QUERIES, KEYS), (BATCH, HEADS, QUERIES, KEYS)])
@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_masks_have_rank_2_3_or_4(shape, dtype, reference):
    layer = make()
    query, memory = normal(BATCH, QUERIES, D_MODEL), normal(BATCH, KEYS, D_MODEL, seed=1)
    mask = np.random.default_rng(2).random(shape) < 0.6
    _, weights = layer(query, memory, attention_mask=mask.astype(dtype), return_attention_scores=True)
    full = np.broadcast_to(mask[:, None] if mask.ndim == 3 else mask, weights.shape)
    expected = [
        reference.multi_head_attention(layer, query, memory, mask=full[:, head])[1][:, head] for head in range(HEADS)
    ]
    np.testing.assert_allclose(to_numpy(weights), np.stack(expected, axis=1), atol=1e-5)


def test_all_masks_are_combined(reference):
    layer = make()
    x = normal(BATCH, QUERIES, D_MODEL)
    rng = np.random.default_rng(2)
    padding, extra = rng.random((BATCH, QUERIES)) < 0.7, rng.random((BATCH, QUERIES, QUERIES)) < 0.7
    result = layer(x, query_mask=padding, attention_mask=extra, use_causal_mask=True)
    allowed = padding[:, None] & extra & np.tri(QUERIES, dtype=bool)
    np.testing.assert_allclose(output(result), reference.multi_head_attention(layer, x, x, mask=allowed)[0], atol=1e-5)


def test_key_mask_is_the_value_mask_unless_given(reference):
    layer = make()
    query, value, key = (normal(BATCH, length, D_MODEL, seed=i) for i, length in enumerate((QUERIES, KEYS, KEYS)))
    mask = np.random.default_rng(2).random((BATCH, KEYS)) < 0.6
    expected = reference.multi_head_attention(layer, query, value, key, mask[:, None])[0]
    np.testing.assert_allclose(output(layer(query, value, key, key_mask=mask)), expected, atol=1e-5)
    np.testing.assert_allclose(output(layer(query, value, key, value_mask=mask)), expected, atol=1e-5)
    np.testing.assert_allclose(output(layer(query, value, key, value_mask=~mask, key_mask=mask)), expected, atol=1e-5)
    expected = reference.multi_head_attention(layer, query, value, value, mask[:, None])[0]
    np.testing.assert_allclose(output(layer(query, value, value_mask=mask)), expected, atol=1e-5)


def test_self_attention_applies_the_masks_of_value_and_key(reference):
    layer = make()
    x, mask = normal(BATCH, QUERIES, D_MODEL), np.random.default_rng(2).random((BATCH, QUERIES)) < 0.6
    expected = reference.multi_head_attention(layer, x, x, mask=mask[:, None])[0]
    for given in ({"value_mask": mask}, {"key_mask": mask}, {"value_mask": mask, "query_mask": ~mask}):
        np.testing.assert_allclose(output(layer(x, **given)), expected, atol=1e-5)
        np.testing.assert_allclose(output(layer(x, x, **given)), expected, atol=1e-5)
        np.testing.assert_allclose(output(layer(x, key=x, **given)), expected, atol=1e-5)


def test_masks_that_would_be_ignored_are_refused():
    layer = make()
    x, mask = normal(BATCH, QUERIES, D_MODEL), np.ones((BATCH, QUERIES), bool)
    for name in ("value_mask", "key_mask"):
        with pytest.raises(ValueError, match=f"With a cache.*`attention_mask` only. Received: {name}"):
            layer(x, **{name: mask}, cache=full_cache(layer))
    with pytest.raises(ValueError, match="one value per position"):
        layer(x, x, key_mask=mask[:, 1:])
    with pytest.raises(ValueError, match="`key` must not be given beside a projected `value`"):
        layer(x, layer.project(keras.ops.convert_to_tensor(x)), key=x)


def test_the_querys_mask_is_not_applied_to_the_memory():
    layer = make()
    query, memory = normal(BATCH, QUERIES, D_MODEL), normal(BATCH, QUERIES, D_MODEL, seed=1)
    mask = np.array([[True, True, False, False, False]] * BATCH)
    assert np.array_equal(output(layer(query, memory, query_mask=mask)), output(layer(query, memory)))


IDS = np.array([[3, 5, 2, 0, 0], [1, 0, 4, 6, 0]], "int32")


@pytest.fixture(params=["Embedding", "Masking"])
def masked(request):
    """A layer that makes the implicit mask, an input for it, and that mask."""
    if request.param == "Embedding":
        return keras.layers.Embedding(7, D_MODEL, mask_zero=True), IDS, IDS != 0
    vectors = normal(BATCH, QUERIES, D_MODEL) * (IDS != 0)[..., None]
    return keras.layers.Masking(), vectors.astype("float32"), IDS != 0


def expected_of(layer, source, inputs, mask, **arguments):
    vectors = to_numpy(source(inputs))
    explicit = output(layer(vectors, query_mask=mask, **arguments))
    assert np.abs(explicit - output(layer(vectors, **arguments))).max() > 1e-3
    return explicit


def test_the_implicit_mask_of_a_single_eager_query_applies(masked):
    source, inputs, mask = masked
    layer = make()
    np.testing.assert_allclose(output(layer(source(inputs))), expected_of(layer, source, inputs, mask), atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True], ids=["call", "predict"])
@pytest.mark.parametrize("kind", ["Sequential", "Functional"])
def test_the_implicit_mask_of_a_single_query_applies_in_a_model(masked, kind, compiled):
    source, inputs, mask = masked
    layer = make()
    start = keras.Input(inputs.shape[1:], dtype=inputs.dtype)
    model = (
        keras.Sequential([start, source, layer]) if kind == "Sequential" else keras.Model(start, layer(source(start)))
    )
    result = model.predict(inputs, verbose=0) if compiled else to_numpy(model(inputs))
    np.testing.assert_allclose(result, expected_of(layer, source, inputs, mask), atol=1e-6)


def test_an_implicit_mask_and_an_attention_mask_apply_together(masked):
    source, inputs, mask = masked
    layer = make()
    extra = np.random.default_rng(2).random((BATCH, QUERIES, QUERIES)) < 0.8
    expected = expected_of(layer, source, inputs, mask, attention_mask=extra)
    np.testing.assert_allclose(output(layer(source(inputs), attention_mask=extra)), expected, atol=1e-6)


def test_the_implicit_mask_of_the_memory_applies(masked):
    source, inputs, mask = masked
    layer = make()
    query = normal(BATCH, 3, D_MODEL, seed=5)
    memory = source(inputs)
    expected = output(layer(query, to_numpy(memory), value_mask=mask))
    np.testing.assert_allclose(output(layer(query, memory)), expected, atol=1e-6)
    start, start_query = keras.Input(inputs.shape[1:], dtype=inputs.dtype), keras.Input((3, D_MODEL))
    model = keras.Model([start_query, start], layer(start_query, source(start)))
    np.testing.assert_allclose(model.predict([query, inputs], verbose=0), expected, atol=1e-6)


def test_an_explicit_mask_takes_the_place_of_the_implicit_one(masked):
    source, inputs, _ = masked
    layer = make()
    vectors = source(inputs)
    everything = np.ones((BATCH, QUERIES), bool)
    np.testing.assert_allclose(
        output(layer(vectors, query_mask=everything)), output(layer(to_numpy(vectors))), atol=1e-6
    )


def test_the_querys_mask_passes_on(masked):
    source, inputs, mask = masked
    result = make()(source(inputs))
    assert np.array_equal(to_numpy(result._keras_mask), mask)
