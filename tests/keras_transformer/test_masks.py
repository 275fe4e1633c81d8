import re

import keras
import numpy as np
import pytest

from keras_transformer import masks

to_numpy = keras.ops.convert_to_numpy


def test_padding_mask_is_true_where_a_token_is_real():
    mask = to_numpy(masks.padding_mask(np.array([[5, 6, 0], [0, 1, 0]])))
    assert mask.dtype == bool
    assert mask.tolist() == [[True, True, False], [False, True, False]]
    assert to_numpy(masks.padding_mask(np.array([[5, 0]]), pad_id=5)).tolist() == [[False, True]]


def test_causal_mask_is_the_picture_in_its_docstring():
    picture = re.findall(r"query (\d+):  ([01 ]+)\n", masks.causal_mask.__doc__)
    assert picture == [("1", "1 1 0 0"), ("2", "1 1 1 0")]
    rows = [[int(digit) for digit in row.split()] for _, row in picture]
    mask = to_numpy(masks.causal_mask(2, 4, offset=int(picture[0][0])))
    assert mask.dtype == bool
    assert mask.astype(int).tolist() == rows


@pytest.mark.parametrize("query_length", [1, 3, 5])
def test_causal_mask_without_offset_is_lower_triangular(query_length):
    assert np.array_equal(to_numpy(masks.causal_mask(query_length, 5)), np.tri(query_length, 5, dtype=bool))


def test_causal_mask_takes_a_tensor_as_offset():
    offset = keras.ops.convert_to_tensor(2)
    assert np.array_equal(to_numpy(masks.causal_mask(3, 5, offset)), np.tri(3, 5, k=2, dtype=bool))


def test_prefix_lm_mask_is_the_picture_in_its_docstring():
    picture = re.findall(r"prefix (\d):  ([01 ]+)\n", masks.prefix_lm_mask.__doc__)
    prefix = [int(digit) for digit, _ in picture]
    rows = [[int(digit) for digit in row.split()] for _, row in picture]
    mask = to_numpy(masks.prefix_lm_mask(np.array([prefix, [0] * 5])))
    assert mask.dtype == bool and prefix == [1, 1, 0, 0, 0]
    assert mask[0].astype(int).tolist() == rows
    assert np.array_equal(mask[1], np.tri(5, dtype=bool))


def test_segment_mask_is_the_picture_in_its_docstring():
    picture = re.findall(r"segment (\d):  ([01 ]+)\n", masks.segment_mask.__doc__)
    queries = [int(segment) for segment, _ in picture]
    rows = [[int(digit) for digit in row.split()] for _, row in picture]
    mask = to_numpy(masks.segment_mask(np.array([queries]), np.array([[1, 1, 1, 2, 2]])))
    assert mask.dtype == bool and queries == [1, 1, 2, 0]
    assert mask[0].astype(int).tolist() == rows


def test_no_masks_combine_to_none():
    assert masks.attention_mask() is None


def test_attention_mask_is_the_conjunction():
    rng = np.random.default_rng(0)
    key_mask, mask = rng.random((2, 5)) < 0.7, rng.random((2, 3, 5)) < 0.7
    causal = np.tri(3, 5, k=1, dtype=bool)
    combined = to_numpy(masks.attention_mask(key_mask, mask, keras.ops.convert_to_tensor(causal)))
    assert combined.dtype == bool
    assert np.array_equal(combined, (key_mask[:, None] & mask & causal)[:, None])


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), (1, 1, 1, 1)), ((5,), (1, 1, 1, 5)), ((3, 5), (1, 1, 3, 5)), ((2, 3, 5), (2, 1, 3, 5)), ((2, 7, 3, 5),) * 2],
)
@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
def test_masks_of_any_rank_and_dtype_are_combined(shape, expected, dtype):
    mask = np.random.default_rng(1).integers(0, 2, shape)
    combined = to_numpy(masks.attention_mask(mask=np.asarray(mask, dtype)))
    assert combined.shape == expected
    assert np.array_equal(combined, np.reshape(mask, expected).astype(bool))


def test_a_higher_rank_is_refused():
    with pytest.raises(ValueError, match=r"`attention_mask`.*rank.*Received: shape=\(1, 1, 1, 1, 5\)"):
        masks.attention_mask(mask=np.ones((1, 1, 1, 1, 5), bool))


def test_resolve_prefers_the_explicit_mask():
    embedded = keras.layers.Embedding(7, 4, mask_zero=True)(np.array([[3, 0]]))
    explicit = np.array([[True, True]])
    assert masks.resolve(explicit, embedded) is explicit
    assert to_numpy(masks.resolve(None, embedded)).tolist() == [[True, False]]
    assert masks.resolve(None, keras.ops.zeros((1, 2, 4))) is None
    assert masks.resolve((None, None), (keras.ops.zeros((1, 2)),) * 2) is None


def test_a_mask_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"mask.*\(batch, 5\).*Received: shape=\(2, 7\)"):
        masks.resolve(keras.ops.ones((2, 7), "bool"), keras.ops.zeros((2, 5, 4)))


def test_masks_may_be_lists():
    zeros = keras.ops.zeros((1, 2, 4))
    assert to_numpy(masks.resolve([[True, False]], zeros)).tolist() == [[True, False]]
    assert to_numpy(masks.resolve([list(np.array([True, False]))], zeros)).tolist() == [[True, False]]
    assert to_numpy(masks.attention_mask([[1, 0]], [[1, 1], [0, 1]])).tolist() == [[[[True, False], [False, False]]]]


def test_a_padding_mask_of_another_rank_is_refused():
    with pytest.raises(ValueError, match=r"mask.*\(batch, 5\).*Received: shape=\(2, 5, 5\)"):
        masks.resolve(keras.ops.ones((2, 5, 5), "bool"), keras.ops.zeros((2, 5, 4)))
