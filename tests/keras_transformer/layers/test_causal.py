import keras
import numpy as np
import pytest

from keras_transformer.layers import CausalDecoder, CausalDecoderLayer

to_numpy = keras.ops.convert_to_numpy
BATCH, LENGTH, D_MODEL = 2, 5, 17
SIZES = {"d_model": D_MODEL, "num_heads": 3, "d_ff": 19, "d_k": 13, "d_v": 11, "dropout": 0.0}
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, D_MODEL)).astype("float32")
MASK = np.array([[True, True, True, True, False], [True, False, True, True, False]])
CAUSAL = np.tri(LENGTH, dtype=bool)


def make(layer_class, randomize, **arguments):
    layer = layer_class(**SIZES, **arguments)
    layer.build((None, None, D_MODEL))
    return randomize(layer, scale=0.3)


@pytest.fixture(params=["CausalDecoderLayer", "CausalDecoder"])
def layer(request, randomize):
    if request.param == "CausalDecoderLayer":
        return make(CausalDecoderLayer, randomize)
    return make(CausalDecoder, randomize, num_layers=2, norm_first=True)


@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_is_the_formula(norm_first, randomize, reference):
    layer = make(CausalDecoderLayer, randomize, norm_first=norm_first)
    expected = reference.encoder_layer(layer, X.astype("float64"), MASK[:, None] & CAUSAL)
    np.testing.assert_allclose(to_numpy(layer(X, mask=MASK)), expected, atol=1e-4)


@pytest.mark.parametrize("final_norm", [None, False, True])
def test_stack_is_its_layers_and_the_final_norm(final_norm, randomize, reference):
    stack = make(CausalDecoder, randomize, num_layers=3, final_norm=final_norm)
    expected = X.astype("float64")
    for layer in stack.layers:
        expected = reference.encoder_layer(layer, expected, CAUSAL)
    if final_norm:
        expected = reference.layer_norm(stack.norm, expected)
    np.testing.assert_allclose(to_numpy(stack(X)), expected, atol=1e-3)


def test_neither_later_nor_masked_positions_matter(layer):
    before, at = to_numpy(layer(X, mask=MASK)), 3
    later, masked = X.copy(), np.where(MASK[..., None], X, 100).astype("float32")
    later[:, at:] = X[::-1, at:]
    after = to_numpy(layer(later, mask=MASK))
    assert np.array_equal(before[:, :at], after[:, :at]) and np.abs(before - after)[:, at:].max() > 1e-3
    assert np.array_equal(before[MASK], to_numpy(layer(masked, mask=MASK))[MASK])
    assert np.abs(before - to_numpy(layer(X)))[MASK].max() > 1e-3


ADDITIONAL = np.random.default_rng(1).random((BATCH, LENGTH, LENGTH)) < 0.6
PREFIX = np.array([[True, True, True, False, False], [True, False, False, False, False]])
CALLS = {
    "attention mask": ({"attention_mask": ADDITIONAL}, ADDITIONAL & CAUSAL),
    "of heads": ({"attention_mask": ADDITIONAL[:, None]}, ADDITIONAL & CAUSAL),
    "prefix": ({"prefix_mask": PREFIX}, CAUSAL | PREFIX[:, None]),
    "both": ({"attention_mask": ADDITIONAL, "prefix_mask": PREFIX}, ADDITIONAL & (CAUSAL | PREFIX[:, None])),
}


@pytest.mark.parametrize(("arguments", "may"), CALLS.values(), ids=CALLS)
def test_attention_masks_and_prefixes_are_the_formula(arguments, may, randomize, reference):
    layer = make(CausalDecoderLayer, randomize)
    expected = reference.encoder_layer(layer, X.astype("float64"), MASK[:, None] & may)
    np.testing.assert_allclose(to_numpy(layer(X, mask=MASK, **arguments)), expected, atol=1e-4)
    stack = make(CausalDecoder, randomize, num_layers=2)
    expected = X
    for layer in stack.layers:
        expected = layer(expected, mask=MASK, **arguments)
    np.testing.assert_allclose(to_numpy(stack(X, mask=MASK, **arguments)), to_numpy(expected), atol=1e-5)


def test_masks_may_be_symbolic(layer):
    inputs = [
        keras.Input((None, D_MODEL), name="x"),
        keras.Input((None, None), dtype="bool", name="attention_mask"),
        keras.Input((None,), dtype="bool", name="prefix_mask"),
    ]
    model = keras.Model(inputs, layer(inputs[0], attention_mask=inputs[1], prefix_mask=inputs[2]))
    expected = to_numpy(layer(X, attention_mask=ADDITIONAL, prefix_mask=PREFIX))
    np.testing.assert_allclose(to_numpy(model([X, ADDITIONAL, PREFIX])), expected, atol=1e-5)


def test_a_prefix_with_a_cache_is_refused(layer):
    cache = layer.empty_cache(BATCH, LENGTH)
    with pytest.raises(ValueError, match="cache.*Received: prefix_mask"):
        layer(X, prefix_mask=PREFIX, cache=cache)


def test_the_implicit_mask_is_the_explicit_one(layer):
    masked = keras.layers.Masking()((X * MASK[..., None]).astype("float32"))
    expected = to_numpy(layer(to_numpy(masked), mask=MASK))
    np.testing.assert_allclose(to_numpy(layer(masked)), expected, atol=1e-6)


@pytest.mark.parametrize("chunks", [(1,) * LENGTH, (2, 3), (3, 1, 1)], ids=str)
def test_cached_equals_uncached(layer, chunks):
    cache, offset, parts = layer.empty_cache(BATCH, LENGTH), 0, []
    for length in chunks:
        part, cache = layer(X[:, offset : offset + length], cache=cache, offset=offset)
        parts.append(to_numpy(part))
        offset += length
    np.testing.assert_allclose(np.concatenate(parts, axis=1), to_numpy(layer(X)), atol=1e-5)
    caches = [cache] if hasattr(cache, "key") else cache
    assert {tuple(one.key.shape) for one in caches} == {(BATCH, 3, LENGTH, 13)}


def test_attention_scores_are_returned_with_the_output(layer):
    output, scores = layer(X, mask=MASK, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(output), to_numpy(layer(X, mask=MASK)), atol=1e-6)
    for weights in scores if isinstance(scores, tuple) else (scores,):
        assert weights.shape == (BATCH, 3, LENGTH, LENGTH)
        may = np.broadcast_to((MASK[:, None] & CAUSAL)[:, None], weights.shape)
        assert (to_numpy(weights)[~may] == 0).all()
        np.testing.assert_allclose(to_numpy(weights).sum(axis=-1), 1, atol=1e-5)


def test_scores_and_cache_are_returned_together(randomize):
    stack = make(CausalDecoder, randomize, num_layers=2)
    cache = stack.empty_cache(BATCH, LENGTH)
    _, scores, grown = stack(X, cache=cache, return_attention_scores=True)
    assert [x.shape for x in scores] == [(BATCH, 3, LENGTH, LENGTH)] * 2
    assert [x.value.shape for x in grown] == [(BATCH, 3, LENGTH, 11)] * 2


def test_a_stack_without_layers_is_refused():
    with pytest.raises(ValueError, match="`num_layers`.*Received: num_layers=0"):
        CausalDecoder(num_layers=0, **SIZES)
