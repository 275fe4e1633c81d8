import keras
import numpy as np
import pytest

from keras_transformer.layers import Dropout

to_numpy = keras.ops.convert_to_numpy
SHAPE = (53, 7, 211)


def masks(layer, count, shape=SHAPE):
    return [to_numpy(layer(np.ones(shape, "float32"), training=True)) > 0 for _ in range(count)]


def test_the_mask_is_that_of_the_reference(reference):
    layer = Dropout(0.3, seed=2**31 - 9)
    for number, mask in enumerate(masks(layer, 3)):
        # The library compares signed numbers, of which 2^31 is 0; the reference's are unsigned.
        expected = reference.random_bits(SHAPE, 2**31 - 9, number) + np.uint32(2**31) >= 0.3 * 2**32
        np.testing.assert_array_equal(mask, expected)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_rate(rate):
    for mask in masks(Dropout(rate, seed=1), 3):
        deviation = np.sqrt(rate * (1 - rate) / mask.size)
        assert abs(1 - mask.mean() - rate) < 4 * deviation


def test_kept_values_are_scaled():
    x = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
    dropped = to_numpy(Dropout(0.2, seed=3)(x, training=True))
    np.testing.assert_allclose(dropped[dropped != 0], x[dropped != 0] / 0.8, rtol=1e-6)


def test_the_seed_decides():
    one, two = masks(Dropout(0.5, seed=1), 1), masks(Dropout(0.5, seed=1), 1)
    np.testing.assert_array_equal(one, two)
    assert (one[0] != masks(Dropout(0.5, seed=4), 1)[0]).mean() > 0.4


def test_nothing_is_dropped_in_inference_and_all_at_rate_1():
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(to_numpy(Dropout(0.5)(x)), x)
    np.testing.assert_array_equal(to_numpy(Dropout(0)(x, training=True)), x)
    np.testing.assert_array_equal(to_numpy(Dropout(1)(x, training=True)), 0 * x)


def test_dropped_values_have_no_gradient():
    """Trained by a loss that is the sum: the gradient of each place is its factor."""
    inputs = keras.Input((1,))
    model = keras.Model(inputs, Dropout(0.4, seed=8)(keras.layers.Dense(1000, use_bias=False)(inputs)))
    before = model.get_weights()[0]
    model.compile(keras.optimizers.SGD(1.0), loss=lambda y, p: keras.ops.sum(p), run_eagerly=False)
    model.train_on_batch(np.ones((1, 1)), np.ones((1, 1000)))
    steps = np.round(before - model.get_weights()[0], 4)[0]
    assert set(np.unique(steps).tolist()) == {0.0, np.float32(1.6667).item()}
    assert 330 < (steps == 0).sum() < 470


def test_half_precision_stays_half_precision():
    layer = Dropout(0.25, seed=1, dtype="mixed_bfloat16")
    dropped = layer(keras.ops.ones(SHAPE, "bfloat16"), training=True)
    assert keras.backend.standardize_dtype(dropped.dtype) == "bfloat16"
    assert set(np.unique(to_numpy(keras.ops.cast(dropped, "float32"))).tolist()) == {0.0, 1.3359375}


@pytest.mark.parametrize("noise_shape", [(None, 1, None), (53, 1, 211), [1, 7, 1]])
def test_the_mask_broadcasts_from_the_shape_of_the_noise(noise_shape, reference):
    layer = Dropout(0.3, seed=5, noise_shape=noise_shape)
    copy = Dropout.from_config(layer.get_config())
    shape = [size or length for size, length in zip(noise_shape, SHAPE, strict=True)]
    expected = reference.random_bits(shape, 5, 0) + np.uint32(2**31) >= 0.3 * 2**32
    for dropout in (layer, copy):
        (mask,) = masks(dropout, 1)
        np.testing.assert_array_equal(mask, np.broadcast_to(expected, SHAPE))


def test_the_shape_of_the_noise_has_the_rank_of_the_inputs():
    with pytest.raises(ValueError, match=r"`noise_shape`.*Received: noise_shape=\(1, None\), inputs.shape=\(2, 3, 5\)"):
        Dropout(0.5, noise_shape=(1, None))(np.ones((2, 3, 5)), training=True)
    with pytest.raises(ValueError, match="`noise_shape`"):
        Dropout(0.5, noise_shape=(0, None))


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match=f"Received: rate={rate}"):
        Dropout(rate)
