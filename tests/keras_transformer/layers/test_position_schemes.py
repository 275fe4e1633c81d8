"""Position schemes inside of an attention: each scheme alone, and several together."""

import keras
import numpy as np
import pytest

from keras_transformer import masks
from keras_transformer.layers import (
    ALiBi,
    MultiHeadAttention,
    PositionScheme,
    QKNorm,
    RelativePositionBias,
    RotaryPositions,
    SlidingWindow,
)

to_numpy = keras.ops.convert_to_numpy
BATCH, LENGTH, HEADS, D_K, D_V, D_MODEL = 2, 7, 3, 10, 11, 17
SCHEMES = {
    "rotary": RotaryPositions,
    "rotary_part": lambda: RotaryPositions(100.0, 0.6, layout="interleaved", scaling="ntk", scaling_factor=3.0),
    "qk_norm": QKNorm,
    "alibi": ALiBi,
    "relative": lambda: RelativePositionBias(num_buckets=6, max_distance=5, bidirectional=False),
    "relative_both": lambda: RelativePositionBias(num_buckets=8, max_distance=5),
    "window": lambda: SlidingWindow(3),
    "three": lambda: [QKNorm(), RotaryPositions(), SlidingWindow(4)],
    "four": lambda: [RotaryPositions(fraction=0.4), ALiBi(), RelativePositionBias(), SlidingWindow(5)],
}


@keras.saving.register_keras_serializable(package="tests")
class Temperature(PositionScheme):
    """Multiplies the queries of each head by a learned number, and adds the position of the key to the scores."""

    def build(self, heads_shape):
        self.temperature = self.add_weight((heads_shape[1], 1, 1), "ones", name="temperature")

    def process_heads(self, query, key, positions):
        return query * keras.ops.cast(self.temperature, query.dtype), key

    def attention_bias(self, query_positions, key_positions):
        return 0.1 * keras.ops.cast(keras.ops.expand_dims(key_positions, 0), "float32")


@keras.saving.register_keras_serializable(package="tests")
class OddDistances(PositionScheme):
    """Masks keys at odd distances, in the first head only."""

    def attention_bias(self, query_positions, key_positions):
        is_even = (keras.ops.expand_dims(query_positions, 1) - key_positions) % 2 == 0
        is_free = keras.ops.reshape(np.arange(HEADS) > 0, (1, HEADS, 1, 1))
        return keras.ops.logical_or(is_even, is_free)


def normal(*shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype("float32")


X = normal(BATCH, LENGTH, D_MODEL)


def make(positions, dtype=None):
    return MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, positions=positions, dtype=dtype)


@pytest.fixture(params=SCHEMES)
def layer(request, randomize):
    """An attention with a scheme or several."""
    layer = make(SCHEMES[request.param]())
    layer.build((None, None, D_MODEL))
    return randomize(layer, scale=0.3)


def run_cached(layer, x, parts, max_length=LENGTH, as_offset=int, **arguments):
    """Runs parts of the positions after one another. A part of 0 is one position, without an axis of length."""
    cache = layer.empty_cache(len(x), max_length)
    outputs, offset = [], 0
    for part in parts:
        inputs = x[:, offset : offset + part] if part else x[:, offset]
        output, cache = layer(inputs, cache=cache, offset=as_offset(offset), **arguments)
        outputs.append(to_numpy(output) if part else to_numpy(output)[:, None])
        offset += part or 1
    return np.concatenate(outputs, axis=1)


def test_cached_equals_uncached_token_by_token(layer):
    expected = to_numpy(layer(X, use_causal_mask=True))
    np.testing.assert_allclose(run_cached(layer, X, [0] * LENGTH, use_causal_mask=True), expected, atol=1e-5)


def test_cached_equals_uncached_in_parts(layer):
    """The offset is a tensor, and an allocated cache is longer than the text."""

    def as_offset(offset):
        return keras.ops.convert_to_tensor(offset, "int32")

    expected = to_numpy(layer(X, use_causal_mask=True))
    result = run_cached(layer, X, [3, 0, 2, 1], 11, as_offset, use_causal_mask=True)
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_every_scheme_changes_the_attention(layer):
    plain = make(None)
    plain.build((None, None, D_MODEL))
    for part in ("query", "key", "value", "output"):
        name = f"{part}_projection"
        getattr(plain, name).set_weights(getattr(layer, name).get_weights())
    difference = to_numpy(layer(X, use_causal_mask=True)) - to_numpy(plain(X, use_causal_mask=True))
    assert np.abs(difference).max() > 1e-3


def test_packed_rows_equal_unpacked_ones(layer):
    """Schemes are relative, so that the second text may stand at any position."""
    lengths = (3, 4)
    segments = np.repeat([[1, 2]], lengths, axis=1).repeat(BATCH, axis=0)
    mask = masks.segment_mask(segments, segments)
    for causal in (False, True):
        packed = to_numpy(layer(X, attention_mask=mask, use_causal_mask=causal))
        alone = [to_numpy(layer(x, use_causal_mask=causal)) for x in np.split(X, [lengths[0]], axis=1)]
        np.testing.assert_allclose(packed, np.concatenate(alone, axis=1), atol=1e-5)


def test_padding_does_not_matter(layer):
    is_real = np.array([[True] * 5 + [False] * 2, [True] * LENGTH])
    changed = np.where(is_real[..., None], X, 9.0).astype("float32")
    outputs = [to_numpy(layer(x, query_mask=is_real)) for x in (X, changed)]
    np.testing.assert_allclose(*(output[is_real] for output in outputs), atol=1e-6)


def test_keys_may_have_fewer_heads(layer):
    query, key = normal(BATCH, HEADS, LENGTH, D_K), normal(BATCH, 1, LENGTH, D_K, seed=1)
    for scheme in layer.positions:
        one = scheme.process_heads(query, key, np.arange(LENGTH))
        other = scheme.process_heads(query, np.repeat(key, HEADS, axis=1), np.arange(LENGTH))
        assert [x.shape for x in one] == [query.shape, key.shape]
        np.testing.assert_allclose(to_numpy(other[1]), np.repeat(to_numpy(one[1]), HEADS, axis=1), atol=1e-6)


def test_symbolic_equals_eager_at_any_length(layer):
    start = keras.Input((None, D_MODEL))
    model = keras.Model(start, layer(start, use_causal_mask=True))
    assert model.output_shape == (None, None, D_MODEL)
    for x in (X, X[:, :1], normal(3, 13, D_MODEL)):
        np.testing.assert_allclose(
            model.predict_on_batch(x), to_numpy(layer(x, use_causal_mask=True)), rtol=1e-4, atol=1e-5
        )


@pytest.mark.portable
@pytest.mark.parametrize("build", [True, False], ids=["built", "unbuilt"])
@pytest.mark.parametrize("name", SCHEMES)
def test_config_round_trip(name, build):
    layer = make(SCHEMES[name]())
    if build:
        layer.build((None, None, D_MODEL))
    config = layer.get_config()
    copy = MultiHeadAttention.from_config(config)
    assert copy.get_config() == config
    assert copy(X).shape == X.shape
    parts = [x.positions if isinstance(x.positions, list) else [x.positions] for x in (layer, copy)]
    for one, other in zip(*parts, strict=True):
        assert type(one) is type(other) and one is not other and one.name == other.name


@pytest.mark.portable
def test_save_and_load(layer, tmp_path):
    start = keras.Input((None, D_MODEL))
    model = keras.Model(start, layer(start))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(X)), to_numpy(model(X)), atol=1e-6)
    assert len(loaded.weights) == len(model.weights)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_half_precision_is_finite_and_near_float32(layer, policy):
    half = MultiHeadAttention.from_config({**layer.get_config(), "dtype": policy})
    half.build((None, None, D_MODEL))
    half.set_weights(layer.get_weights())
    output = half(X, use_causal_mask=True)
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")
    expected = to_numpy(layer(X, use_causal_mask=True))
    tolerance = 0.1 if policy == "mixed_bfloat16" else 0.02
    np.testing.assert_allclose(to_numpy(keras.ops.cast(output, "float32")), expected, atol=tolerance)


class Methods(keras.layers.Layer):
    """Calls the methods of schemes in a layer with a dtype policy, as an attention does."""

    def __init__(self, schemes, **kwargs):
        super().__init__(**kwargs)
        self.schemes = schemes

    def call(self, heads):
        positions = np.arange(LENGTH) + 3000
        found = [x for scheme in self.schemes for x in scheme.process_heads(heads, heads, positions)]
        return found, [scheme.attention_bias(positions, positions) for scheme in self.schemes]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_with_a_policy_of_half_precision_compute_in_float32(name, policy, randomize):
    before, heads = keras.config.dtype_policy(), normal(BATCH, HEADS, LENGTH, D_K)
    try:
        keras.config.set_dtype_policy(policy)
        schemes = SCHEMES[name]()
        layer = Methods(schemes if isinstance(schemes, list) else [schemes])
    finally:
        keras.config.set_dtype_policy(before)
    for scheme in layer.schemes:
        scheme.build(heads.shape)
    assert {weight.dtype for weight in randomize(layer).weights} <= {"float32"}
    halves, biases = layer(heads)
    heads = keras.ops.cast(keras.ops.cast(heads, layer.compute_dtype), "float32")
    singles, exact = layer.call(heads)
    for half, single in zip(halves, singles, strict=True):
        assert keras.backend.standardize_dtype(half.dtype) == layer.compute_dtype
        rounded = keras.ops.cast(keras.ops.cast(single, half.dtype), "float32")
        np.testing.assert_array_equal(to_numpy(keras.ops.cast(half, "float32")), to_numpy(rounded))
    for bias, single in zip(biases, exact, strict=True):
        assert (bias is None) == (single is None)
        if bias is not None:
            assert keras.backend.standardize_dtype(bias.dtype) in ("float32", "bool")
            np.testing.assert_array_equal(to_numpy(bias), to_numpy(single))


@pytest.fixture
def own(randomize):
    """An attention with two schemes of other people."""
    layer = make([Temperature(), OddDistances()])
    layer.build((None, None, D_MODEL))
    return randomize(layer, scale=0.5)


def test_biases_add_up_and_masks_combine(own, reference):
    projections = (own.query_projection, own.key_projection, own.value_projection)
    queries, keys, values = (np.split(reference.dense(part, X), HEADS, axis=-1) for part in projections)
    given = normal(BATCH, 1, LENGTH, LENGTH, seed=4)
    output, weights = own(X, use_causal_mask=True, attention_bias=given, return_attention_scores=True)
    distances = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    heads = []
    for head, (query, key, value) in enumerate(zip(queries, keys, values, strict=True)):
        query = query * to_numpy(own.positions[0].temperature)[head, 0, 0]
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(D_K) + 0.1 * np.arange(LENGTH) + given[:, 0]
        allowed = (distances >= 0) & ((distances % 2 == 0) | (head > 0))
        scores = np.exp(np.where(allowed, scores, -np.inf))
        expected = scores / scores.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(to_numpy(weights)[:, head], expected, atol=1e-5)
        heads.append(expected @ value)
    expected = reference.dense(own.output_projection, np.concatenate(heads, axis=-1))
    np.testing.assert_allclose(to_numpy(output), expected, atol=1e-5)


def test_a_scheme_of_other_people_trains_is_cached_and_is_saved(own, few_steps, tmp_path):
    expected = to_numpy(own(X, use_causal_mask=True))
    np.testing.assert_allclose(run_cached(own, X, [0, 0, 3, 0, 1], use_causal_mask=True), expected, atol=1e-5)
    start = keras.Input((None, D_MODEL))
    model = keras.Model(start, own(start, use_causal_mask=True))
    model.compile(keras.optimizers.SGD(0.1), "mse", **few_steps)
    before = to_numpy(own.positions[0].temperature).copy()
    model.train_on_batch(X, np.ones_like(X))
    assert np.abs(to_numpy(own.positions[0].temperature) - before).min() > 0
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(X)), to_numpy(model(X)), atol=1e-6)


def test_a_bias_of_the_call_equals_that_of_a_scheme(randomize):
    """Several layers may share one bias."""
    inside = make(RelativePositionBias(num_buckets=8, max_distance=5))
    inside.build((None, None, D_MODEL))
    outside = make(None)
    outside.build((None, None, D_MODEL))
    (scheme,) = randomize(inside, scale=0.5).positions
    weights = {weight.path.split("/", 1)[1]: weight for weight in inside.weights}
    for weight in outside.weights:
        weight.assign(weights[weight.path.split("/", 1)[1]])
    positions = np.arange(LENGTH)
    bias = scheme.attention_bias(positions, positions)
    assert bias.shape == (1, HEADS, LENGTH, LENGTH)
    np.testing.assert_allclose(to_numpy(outside(X, attention_bias=bias)), to_numpy(inside(X)), atol=1e-6)
    # Memory of another length, and biases of rank 2.
    memory, flat = normal(BATCH, 5, D_MODEL, seed=1), normal(LENGTH, 5, seed=2)
    full = np.broadcast_to(flat, (BATCH, HEADS, LENGTH, 5))
    np.testing.assert_allclose(
        to_numpy(outside(X, memory, attention_bias=flat)), to_numpy(outside(X, memory, attention_bias=full)), atol=1e-6
    )
    constant = outside(X, attention_bias=np.full((1, 1), 3.0, "float32"))  # Softmax is invariant to it.
    np.testing.assert_allclose(to_numpy(constant), to_numpy(outside(X)), atol=1e-5)
    # A boolean bias is a mask.
    causal = np.tri(LENGTH, dtype=bool)
    expected = to_numpy(outside(X, use_causal_mask=True))
    np.testing.assert_allclose(to_numpy(outside(X, attention_bias=causal)), expected, atol=1e-6)


def test_the_base_class_changes_nothing():
    layer, plain = make([PositionScheme(), PositionScheme()]), make(None)
    for attention in (layer, plain):
        attention.build((None, None, D_MODEL))
    plain.set_weights(layer.get_weights())
    np.testing.assert_array_equal(to_numpy(layer(X)), to_numpy(plain(X)))


def test_a_config_without_positions_loads():
    """Earlier versions wrote such files."""
    config = make(None).get_config()
    assert config.pop("positions") == []
    assert MultiHeadAttention.from_config(config).positions == []


@pytest.mark.parametrize("symbolic", [False, True])
def test_another_value_is_refused(symbolic):
    layer, x, y = make(RotaryPositions()), *(keras.Input((LENGTH, D_MODEL)) if symbolic else X + i for i in range(2))
    layer(X)
    for arguments, received in (((y,), "value"), ((y, y), "value, key"), ((None, y), "key"), ((x, y), "key")):
        with pytest.raises(ValueError, match=f"`positions` computes self-attention.*Received: {received}[^,]"):
            layer(x, *arguments)
    with pytest.raises(ValueError, match="`positions` computes self-attention.*Received: value[^,]"):
        layer(X, layer.project(keras.ops.convert_to_tensor(X)))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_query_may_be_given_as_value_and_key_as_in_keras(dtype):
    layer = make(RotaryPositions(), dtype=dtype)
    expected = to_numpy(layer(X))
    for arguments in ((X,), (X, X), (None, X)):
        np.testing.assert_array_equal(to_numpy(layer(X, *arguments)), expected)
    inputs = keras.Input((None, D_MODEL))
    np.testing.assert_array_equal(to_numpy(keras.Model(inputs, layer(inputs, value=inputs))(X)), expected)


@pytest.mark.parametrize("positions", ["rotary", 5, ALiBi, [RotaryPositions, None], [keras.layers.Dense(3)]])
def test_what_is_no_scheme_is_refused(positions):
    with pytest.raises(
        ValueError, match="`positions` must be a PositionScheme or a list of them. Received: positions="
    ):
        make(positions)


@pytest.mark.parametrize("scheme", [QKNorm(name="shared"), ALiBi(name="shared")])
def test_a_scheme_in_two_attentions_is_refused(scheme):
    first = make(scheme)
    with pytest.raises(ValueError, match="part of one block only.* Received: shared, a part of multi_head"):
        make([scheme])
    assert first(X).shape == X.shape


def test_a_bias_of_rank_3_is_refused():
    """Its first axis might be the batch or the heads."""
    with pytest.raises(ValueError, match=r"rank 2 or 4. Received: shape=\(3, 7, 7\)"):
        make(None)(X, attention_bias=np.zeros((HEADS, LENGTH, LENGTH), "float32"))
