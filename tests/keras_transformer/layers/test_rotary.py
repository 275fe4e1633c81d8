import keras
import numpy as np
import pytest

from keras_transformer.layers import RotaryPositions

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
BATCH, HEADS, KV_HEADS, LENGTH, D_K = 2, 3, 1, 7, 10


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


QUERY, KEY = normal(BATCH, HEADS, LENGTH, D_K), normal(BATCH, KV_HEADS, LENGTH, D_K, seed=1)
OPTIONS = [
    {},
    {"base": 50.0},
    {"fraction": 0.6},
    {"fraction": 0.6, "layout": "interleaved"},
    {"layout": "interleaved", "scaling": "linear", "scaling_factor": 3.0},
    {"scaling": "ntk", "scaling_factor": 3.0, "fraction": 0.4},
]


def rotated(x, positions, base=10000.0, fraction=1.0, layout="halves", scaling=None, scaling_factor=1.0):
    """§3.2.2 of the paper, one pair of entries after another, as complex numbers."""
    width = int(x.shape[-1] * fraction)
    result = x.astype("float64")
    if scaling == "ntk":
        base = base * scaling_factor ** (width / (width - 2))
    for i in range(width // 2):
        one, other = (i, i + width // 2) if layout == "halves" else (2 * i, 2 * i + 1)
        angle = positions * base ** (-2 * i / width) / (scaling_factor if scaling == "linear" else 1)
        turned = (x[..., one] + 1j * x[..., other]) * np.exp(1j * angle)
        result[..., one], result[..., other] = turned.real, turned.imag
    return result


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_is_the_formula(options):
    positions = np.arange(LENGTH) + 5
    scheme = RotaryPositions(**options)
    scheme.build(QUERY.shape)
    for ours, x in zip(scheme.process_heads(QUERY, KEY, positions), (QUERY, KEY), strict=True):
        np.testing.assert_allclose(to_numpy(ours), rotated(x, positions, **options), atol=1e-5)
    assert scheme.attention_bias(positions, positions) is None


def test_by_hand():
    """Position 1 turns the pair of entries 0 and 1 by one radian."""
    heads = np.array([[[[1.0, 0.0]]]], "float32")
    query, key = RotaryPositions().process_heads(heads, 2 * heads, np.array([1]))
    np.testing.assert_allclose(to_numpy(query)[0, 0, 0], [np.cos(1), np.sin(1)], atol=1e-6)
    np.testing.assert_allclose(to_numpy(key)[0, 0, 0], [2 * np.cos(1), 2 * np.sin(1)], atol=1e-6)
    # NTK scaling leaves the only frequency of a width of 2.
    scaled, _ = RotaryPositions(scaling="ntk", scaling_factor=4.0).process_heads(heads, heads, np.array([1]))
    np.testing.assert_allclose(to_numpy(scaled), to_numpy(query), atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_scores_do_not_change_when_all_positions_shift(options):
    def scores(first):
        query, key = map(to_numpy, RotaryPositions(**options).process_heads(QUERY, KEY, np.arange(LENGTH) + first))
        return query @ key.swapaxes(-1, -2)

    np.testing.assert_allclose(scores(113), scores(0), atol=1e-4)
    assert np.abs(scores(0) - QUERY @ KEY.swapaxes(-1, -2)).max() > 0.1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(dtype):
    """Positions above 2048 are not exact in half precision."""
    positions = np.arange(LENGTH) + 60_001
    scheme, query = RotaryPositions(dtype=f"mixed_{dtype}"), keras.ops.cast(QUERY, dtype)
    half, _ = scheme.process_heads(query, query, positions)
    assert keras.backend.standardize_dtype(half.dtype) == dtype
    single, _ = scheme.process_heads(keras.ops.cast(query, "float32"), KEY, positions)
    rounded = keras.ops.cast(keras.ops.cast(single, dtype), "float32")
    np.testing.assert_array_equal(to_numpy(keras.ops.cast(half, "float32")), to_numpy(rounded))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base": 0}, "`base` must be positive.*Received: base=0"),
        ({"fraction": 0.0}, r"`fraction` must be in \(0, 1\]. Received: fraction=0.0"),
        ({"fraction": 1.5}, r"`fraction` must be in \(0, 1\]. Received: fraction=1.5"),
        ({"layout": "thirds"}, "`layout` must be one of halves, interleaved. Received: layout='thirds'"),
        ({"scaling": "yarn"}, "`scaling` must be one of linear, ntk. Received: scaling='yarn'"),
        ({"scaling": "linear", "scaling_factor": 0.5}, "`scaling_factor` must be at least 1. Received: .*=0.5"),
        ({"scaling_factor": 2.0}, "`scaling_factor` requires `scaling`. Received: scaling_factor=2.0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RotaryPositions(**arguments)


@pytest.mark.parametrize(("d_k", "fraction", "width"), [(7, 1.0, 7), (10, 0.5, 5), (10, 0.1, 1), (6, 0.1, 0)])
def test_an_odd_width_is_refused(d_k, fraction, width):
    with pytest.raises(ValueError, match=rf"width int\(d_k \* fraction\).*Received: width={width}, d_k={d_k}, "):
        RotaryPositions(fraction=fraction).build((None, HEADS, None, d_k))
