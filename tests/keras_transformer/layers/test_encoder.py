import keras
import numpy as np
import pytest

from keras_transformer.layers import Encoder, EncoderLayer, TokenEmbedding

to_numpy = keras.ops.convert_to_numpy
BATCH, LENGTH, D_MODEL = 2, 5, 17
SIZES = {"d_model": D_MODEL, "num_heads": 3, "d_ff": 19, "d_k": 13, "d_v": 11, "dropout": 0.0}
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, D_MODEL)).astype("float32")
MASK = np.array([[True, True, True, False, False], [True, False, True, True, False]])


def normal(*shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def make(layer_class, randomize, **arguments):
    layer = layer_class(**SIZES, **arguments)
    layer.build((None, None, D_MODEL))
    return randomize(layer, scale=0.3)


@pytest.fixture(params=["EncoderLayer", "Encoder"])
def layer(request, randomize):
    if request.param == "EncoderLayer":
        return make(EncoderLayer, randomize)
    return make(Encoder, randomize, num_layers=2)


@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_is_the_formula(norm_first, randomize, reference):
    layer = make(EncoderLayer, randomize, norm_first=norm_first)
    expected = reference.encoder_layer(layer, X.astype("float64"), MASK[:, None])
    np.testing.assert_allclose(to_numpy(layer(X, mask=MASK)), expected, atol=1e-4)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("final_norm", [None, False, True])
def test_stack_is_its_layers_and_the_final_norm(norm_first, final_norm, randomize, reference):
    stack = make(Encoder, randomize, num_layers=3, norm_first=norm_first, final_norm=final_norm)
    expected = X.astype("float64")
    for layer in stack.layers:
        expected = reference.encoder_layer(layer, expected, MASK[:, None])
    has_norm = norm_first if final_norm is None else final_norm
    assert (stack.norm is not None) == stack.final_norm == has_norm
    if has_norm:
        expected = reference.layer_norm(stack.norm, expected)
    np.testing.assert_allclose(to_numpy(stack(X, mask=MASK)), expected, atol=1e-3)


def test_masked_positions_never_matter(layer):
    changed = np.where(MASK[..., None], X, normal(*X.shape, seed=1) * 100).astype("float32")
    before, after = to_numpy(layer(X, mask=MASK)), to_numpy(layer(changed, mask=MASK))
    assert np.array_equal(before[MASK], after[MASK])
    assert np.abs(before - to_numpy(layer(X)))[MASK].max() > 1e-3


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_all_padding_is_finite(policy):
    layer = Encoder(num_layers=2, **SIZES, dtype=policy)
    result = layer(X, mask=np.zeros((BATCH, LENGTH), bool))
    assert np.isfinite(to_numpy(keras.ops.cast(result, "float32"))).all()


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_an_implicit_mask_and_an_attention_mask_apply_together(layer, rank):
    rng = np.random.default_rng(2)
    extra = rng.random({2: (LENGTH,) * 2, 3: (BATCH, LENGTH, LENGTH), 4: (BATCH, 3, LENGTH, LENGTH)}[rank]) < 0.8
    masked = keras.layers.Masking()((X * MASK[..., None]).astype("float32"))
    expected = to_numpy(layer(to_numpy(masked), mask=MASK, attention_mask=extra))
    np.testing.assert_allclose(to_numpy(layer(masked, attention_mask=extra)), expected, atol=1e-6)
    assert np.abs(expected - to_numpy(layer(to_numpy(masked), attention_mask=extra))).max() > 1e-3
    assert np.abs(expected - to_numpy(layer(masked))).max() > 1e-3


def test_an_implicit_mask_and_an_attention_mask_apply_together_compiled(layer):
    extra = np.random.default_rng(2).random((BATCH, LENGTH, LENGTH)) < 0.8
    vectors = (X * MASK[..., None]).astype("float32")
    inputs = keras.Input((None, D_MODEL)), keras.Input((None, None), dtype="bool")
    model = keras.Model(inputs, layer(keras.layers.Masking()(inputs[0]), attention_mask=inputs[1]))
    expected = to_numpy(layer(vectors, mask=MASK, attention_mask=extra))
    np.testing.assert_allclose(model.predict([vectors, extra], verbose=0), expected, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True], ids=["call", "predict"])
def test_the_implicit_mask_applies_in_a_sequential_model(layer, compiled):
    ids = np.where(MASK, [1, 2, 3, 4, 5], 0).astype("int32")
    embedding = keras.layers.Embedding(7, D_MODEL, mask_zero=True)
    model = keras.Sequential([keras.Input((None,)), embedding, layer])
    expected = to_numpy(layer(to_numpy(embedding(ids)), mask=MASK))
    result = model.predict(ids, verbose=0) if compiled else to_numpy(model(ids))
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_the_mask_passes_on(layer):
    embedded = keras.layers.Embedding(7, D_MODEL, mask_zero=True)(np.array([[3, 0]]))
    assert to_numpy(layer(embedded)._keras_mask).tolist() == [[True, False]]


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_is_on_in_training_only(rate):
    layer = Encoder(num_layers=2, **{**SIZES, rate: 0.5})
    still = to_numpy(layer(X))
    np.testing.assert_allclose(to_numpy(layer(X, training=False)), still, atol=1e-6)
    assert np.abs(to_numpy(layer(X, training=True)) - still).max() > 1e-2


def test_symbolic_shape_equals_eager_shape(layer):
    assert tuple(layer(keras.Input((None, D_MODEL))).shape) == (None, None, D_MODEL)
    assert layer(X).shape == X.shape


def test_options_reach_the_sub_layers():
    stack = Encoder(num_layers=2, **SIZES, activation="gelu", use_bias=False, layer_norm_epsilon=1e-3, final_norm=True)
    assert stack.norm.epsilon == 1e-3
    for layer in stack.layers:
        assert layer.feed_forward.sublayer.activation is keras.activations.gelu
        assert not layer.self_attention.sublayer.use_bias and not layer.feed_forward.sublayer.use_bias
        assert layer.self_attention.norm.epsilon == layer.feed_forward.norm.epsilon == 1e-3


def test_frozen_layer_has_nothing_to_train(layer):
    assert layer.trainable_weights
    layer.trainable = False
    assert layer.trainable_weights == []


def test_num_layers_must_be_positive():
    with pytest.raises(ValueError, match="`num_layers`.*Received: num_layers=0"):
        Encoder(num_layers=0, **SIZES)


def test_attention_scores_are_returned_beside_the_output(layer):
    output, scores = layer(X, mask=MASK, return_attention_scores=True)
    np.testing.assert_array_equal(to_numpy(output), to_numpy(layer(X, mask=MASK)))
    layers = layer.layers if isinstance(layer, Encoder) else [layer]
    scores = scores if isinstance(layer, Encoder) else (scores,)
    x = X
    for part, weights in zip(layers, scores, strict=True):
        attention = part.self_attention.sublayer
        _, expected = attention(x, query_mask=MASK, return_attention_scores=True)
        np.testing.assert_allclose(to_numpy(weights), to_numpy(expected), atol=1e-6)
        x = part(x, mask=MASK)
    assert not to_numpy(scores[-1])[np.broadcast_to(~MASK[:, None, None], scores[-1].shape)].any()


def test_symbolic_attention_scores_have_their_shapes(layer):
    inputs = keras.Input((None, D_MODEL))
    model = keras.Model(inputs, layer(inputs, return_attention_scores=True))
    shapes = [tuple(x.shape) for x in keras.tree.flatten(model.output)]
    found = [x.shape for x in keras.tree.flatten(model(X))]
    assert shapes[0] == (None, None, D_MODEL) and {shape[1] for shape in shapes[1:]} == {3}
    assert found == [X.shape] + [(BATCH, 3, LENGTH, LENGTH)] * (2 if isinstance(layer, Encoder) else 1)


def test_a_plain_symbolic_call_is_not_traced(monkeypatch):
    """Tracing the layers takes most of the time of building a model."""
    encoder = Encoder(num_layers=2, d_model=8, num_heads=2, d_ff=13, dtype="mixed_bfloat16")
    calls = []
    monkeypatch.setattr(EncoderLayer, "call", lambda self, inputs, **kwargs: calls.append(1) or inputs)
    embedded = TokenEmbedding(vocab_size=11, d_model=8)(keras.Input((None,), dtype="int32"))
    output = encoder(embedded)
    assert (output.shape, output.dtype, calls) == ((None, None, 8), "bfloat16", [])
    encoder(embedded, attention_mask=keras.Input((1, 5, 5), dtype="bool"))
    assert len(calls) >= 2


class EveryOther(keras.layers.Layer):
    """Keeps every other position, but passes on the mask of all."""

    supports_masking = True

    def call(self, x):
        return x[:, ::2]


def test_an_implicit_mask_of_another_length_is_refused_when_the_model_is_built(layer):
    embedded = TokenEmbedding(vocab_size=11, d_model=D_MODEL)(keras.Input((6,), dtype="int32"))
    with pytest.raises(ValueError, match=r"padding mask must have shape \(batch, 3\)"):
        layer(EveryOther()(embedded))
