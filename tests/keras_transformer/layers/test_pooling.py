import keras
import numpy as np
import pytest

from keras_transformer.layers import SequencePooling, TokenEmbedding

to_numpy = keras.ops.convert_to_numpy
X = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("float32") - 2.0  # The largest values are negative, too.
#: Padding on the right, on the left, within, and nothing else.
MASK = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
REFERENCE = {"mean": lambda x: x.mean(axis=0), "first": lambda x: x[0], "max": lambda x: x.max(axis=0)}


@pytest.mark.parametrize("pooling", REFERENCE)
def test_only_real_positions_are_pooled(pooling):
    expected = [REFERENCE[pooling](x[mask]) for x, mask in zip(X[:3], MASK[:3], strict=True)] + [np.zeros(3)]
    hidden = np.where(MASK[..., None], X, np.nan)
    for inputs, mask in ((X, MASK), (hidden, MASK), (X, MASK.astype("int32"))):
        np.testing.assert_allclose(to_numpy(SequencePooling(pooling)(inputs, mask=mask)), expected, rtol=1e-6)
    np.testing.assert_allclose(to_numpy(SequencePooling(pooling)(X)), REFERENCE[pooling](X.swapaxes(0, 1)), rtol=1e-6)


@pytest.mark.parametrize("pooling", REFERENCE)
def test_half_precision_does_not_overflow(pooling):
    x = np.full((2, 700, 2), 6e4, "float16")
    mask = np.arange(700) < np.array([[650], [0]])
    output = SequencePooling(pooling, dtype="float16")(x, mask=mask)
    assert keras.backend.standardize_dtype(output.dtype) == "float16"
    np.testing.assert_array_equal(to_numpy(output), x[:, 0] * [[1], [0]])


@pytest.mark.parametrize("pooling", REFERENCE)
def test_a_row_of_padding_in_fit_leaves_the_weights_finite(pooling, few_steps):
    ids = keras.Input((None,), dtype="int32")
    x = SequencePooling(pooling)(TokenEmbedding(7, 4)(ids))
    model = keras.Model(ids, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse", **few_steps)
    model.train_on_batch(np.array([[3, 4, 0], [0, 0, 0]]), np.ones((2, 1), "float32"))
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert to_numpy(model(np.zeros((1, 3), "int32")))[0] == pytest.approx(to_numpy(model.layers[-1].bias))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="`pooling` must be one of mean, first, max. Received: pooling='sum'"):
        SequencePooling("sum")
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(batch, length, width\).*\(2, 3\)"):
        SequencePooling()(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match="`mask` must be boolean"):
        SequencePooling()(X, mask=MASK.astype("float32"))
    with pytest.raises(ValueError, match="one value per position"):
        SequencePooling()(X, mask=MASK[:, :4])
