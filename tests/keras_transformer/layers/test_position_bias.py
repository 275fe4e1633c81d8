import itertools
import math

import keras
import numpy as np
import pytest

from keras_transformer.layers import ALiBi, MultiHeadAttention, RelativePositionBias, SlidingWindow

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
HEADS, D_K = 3, 5
QUERIES, KEYS = np.arange(4) + 19, np.arange(37)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(scheme, num_heads=HEADS):
    scheme.build((None, num_heads, None, D_K))
    return scheme


def bucket(distance, num_buckets, max_distance, bidirectional):
    """The bucket of a key that is `distance` positions before the query."""
    if bidirectional:
        count = num_buckets // 2
        return bucket(abs(distance), count, max_distance, False) + (count if distance < 0 else 0)
    exact, distance = num_buckets // 2, max(distance, 0)
    if distance < exact:
        return distance
    # A little is added, so that rounding does not move a distance at the border into the bucket below.
    growth = math.log(distance / exact) / math.log(max_distance / exact) + 1e-9
    return min(exact + int(growth * (num_buckets - exact)), num_buckets - 1)


@pytest.mark.parametrize(
    ("num_heads", "slopes"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (8, [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8]),
        (3, [2**-4, 2**-8, 2**-2]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
    ],
)
def test_alibi_has_the_slopes_of_the_paper(num_heads, slopes):
    bias = to_numpy(built(ALiBi(), num_heads).attention_bias(QUERIES, KEYS))
    distance = np.abs(QUERIES[:, None] - KEYS)
    np.testing.assert_allclose(bias, -np.reshape(slopes, (1, -1, 1, 1)) * distance, rtol=1e-6)


def test_alibi_is_finite_on_long_texts():
    layer = MultiHeadAttention(12, 3, positions=ALiBi(), dtype="mixed_float16")
    for length in (32, 128):
        output = to_numpy(keras.ops.cast(layer(normal(1, length, 12), use_causal_mask=True), "float32"))
        assert np.isfinite(output).all() and np.abs(output[0, -1]).max() > 0
    far = to_numpy(built(ALiBi()).attention_bias(np.array([1_000_000]), np.array([0, 1_000_000])))
    np.testing.assert_allclose(far[0, 0, 0], [-62_500, 0])


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(8, 13), (32, 128), (12, 21)])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_relative_position_bias_is_the_table_of_the_buckets(num_buckets, max_distance, bidirectional, randomize):
    scheme = randomize(built(RelativePositionBias(num_buckets, max_distance, bidirectional)))
    table = to_numpy(scheme.embeddings)
    assert table.shape == (num_buckets, HEADS)
    queries, keys = QUERIES + 150, np.arange(0, 400, 3)
    bias = to_numpy(scheme.attention_bias(queries, keys))
    assert bias.shape == (1, HEADS, len(queries), len(keys))
    for (i, query), (j, key) in itertools.product(enumerate(queries), enumerate(keys)):
        row = table[bucket(int(query - key), num_buckets, max_distance, bidirectional)]
        np.testing.assert_array_equal(bias[0, :, i, j], row)


def test_buckets_by_hand():
    scheme = built(RelativePositionBias(num_buckets=4, max_distance=8, bidirectional=False), 1)
    scheme.embeddings.assign(np.arange(4)[:, None])
    # Buckets 0 and 1 hold one distance each, bucket 2 the distances 2 and 3, bucket 3 those from 4 = 2 · (8 / 2)^(1/2).
    bias = to_numpy(scheme.attention_bias(np.array([9]), np.arange(12)))[0, 0, 0]
    assert bias.astype(int).tolist() == [3, 3, 3, 3, 3, 3, 2, 2, 1, 0, 0, 0]


def test_the_table_starts_from_its_initializer_and_learns(few_steps):
    scheme = RelativePositionBias(8, 13, embeddings_initializer=keras.initializers.Constant(0.25))
    layer = MultiHeadAttention(15, HEADS, positions=scheme)
    x = normal(2, 7, 15)
    start = keras.Input((None, 15))
    model = keras.Model(start, layer(start))
    np.testing.assert_array_equal(to_numpy(scheme.embeddings), np.full((8, HEADS), 0.25))
    model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
    model.train_on_batch(x, np.ones_like(x))
    moved = np.abs(to_numpy(scheme.embeddings) - 0.25).max(axis=1) > 0
    used = {bucket(distance, 8, 13, True) for distance in range(-6, 7)}
    assert {*np.flatnonzero(moved)} == used
    copy = RelativePositionBias.from_config(scheme.get_config())
    assert copy.get_config() == scheme.get_config()
    np.testing.assert_array_equal(to_numpy(built(copy).embeddings), np.full((8, HEADS), 0.25))


def test_the_window_is_the_distance_below_its_size():
    mask = SlidingWindow(3).attention_bias(QUERIES, KEYS)
    assert keras.backend.standardize_dtype(mask.dtype) == "bool"
    np.testing.assert_array_equal(to_numpy(mask), np.abs(QUERIES[:, None] - KEYS) < 3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7, 8])
def test_a_window_masks_what_is_outside_of_it(size, causal):
    window = MultiHeadAttention(15, HEADS, positions=SlidingWindow(size))
    x = normal(2, 7, 15)
    plain = MultiHeadAttention(15, HEADS)
    for layer in (window, plain):
        layer.build(x.shape)
    plain.set_weights(window.get_weights())
    distance = np.arange(7)[:, None] - np.arange(7)
    expected = to_numpy(plain(x, attention_mask=np.abs(distance) < size, use_causal_mask=causal))
    result = to_numpy(window(x, use_causal_mask=causal))
    np.testing.assert_allclose(result, expected, atol=1e-6)
    is_all = np.allclose(result, to_numpy(plain(x, use_causal_mask=causal)), atol=1e-6)
    assert is_all == (size >= 7)  # A window as long as the text changes nothing.


def test_a_query_whose_window_is_masked_gives_zeros():
    layer = MultiHeadAttention(15, HEADS, positions=SlidingWindow(2), use_bias=False)
    is_real = np.array([[False] * 4 + [True] * 3])
    output = to_numpy(layer(normal(1, 7, 15), query_mask=is_real))
    assert not output[0, :3].any() and np.abs(output[0, 3:]).min(axis=1).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlidingWindow(0), "`size` must be at least 1. Received: size=0"),
        (lambda: SlidingWindow(2.5), "`size` must be an integer. Received: size=2.5"),
        (lambda: RelativePositionBias(3), "`num_buckets` must be at least 4. Received: num_buckets=3"),
        (lambda: RelativePositionBias(7), "`num_buckets` must be even if `bidirectional`. Received: num_buckets=7"),
        (
            lambda: RelativePositionBias(1, bidirectional=False),
            "`num_buckets` must be at least 2. Received: num_buckets=1",
        ),
        (lambda: RelativePositionBias(max_distance=1.5), "`max_distance` must be an integer. Received: .*=1.5"),
        (
            lambda: RelativePositionBias(32, 8),
            "`max_distance` must be above 8.*Received: max_distance=8, num_buckets=3",
        ),
        (
            lambda: RelativePositionBias(32, 16, bidirectional=False),
            "`max_distance` must be above 16.*Received: max_distance=16, num_buckets=32",
        ),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
