import keras
import numpy as np
import pytest

from keras_transformer.layers import Decoder, DecoderLayer, MultiHeadAttention

to_numpy = keras.ops.convert_to_numpy
BATCH, TARGET, SOURCE, D_MODEL, D_MEMORY = 2, 5, 7, 17, 23
SIZES = {"d_model": D_MODEL, "num_heads": 3, "d_ff": 19, "d_k": 13, "d_v": 11, "dropout": 0.0}
TARGET_MASK = np.array([[True, True, True, False, False], [True] * 5])
MEMORY_MASK = np.array([[True] * 4 + [False] * 3, [False, True] * 3 + [True]])
POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


X, MEMORY = normal(BATCH, TARGET, D_MODEL), normal(BATCH, SOURCE, D_MEMORY, seed=1)


def make(layer_class, randomize, **arguments):
    layer = layer_class(**{**SIZES, **arguments})
    layer.build((None, None, D_MODEL), (None, None, D_MEMORY))
    return randomize(layer, scale=0.3)


@pytest.fixture(params=["DecoderLayer", "Decoder"])
def layer_and_options(request):
    return (DecoderLayer, {}) if request.param == "DecoderLayer" else (Decoder, {"num_layers": 2})


@pytest.fixture
def layer(layer_and_options, randomize):
    layer_class, options = layer_and_options
    return make(layer_class, randomize, **options)


def output(result, cached=False):
    return to_numpy(keras.ops.cast(result[0] if cached else result, "float32"))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.portable
def test_layer_is_the_formula(norm_first, randomize, reference):
    layer = make(DecoderLayer, randomize, norm_first=norm_first)
    masks = TARGET_MASK[:, None] & np.tri(TARGET, dtype=bool), MEMORY_MASK[:, None]
    expected = reference.decoder_layer(layer, X.astype("float64"), MEMORY.astype("float64"), *masks)
    result = layer(X, MEMORY, target_mask=TARGET_MASK, memory_mask=MEMORY_MASK)
    np.testing.assert_allclose(output(result), expected, atol=1e-4)


def test_attention_masks_apply_to_both_attentions(layer_and_options, randomize, reference):
    """They add to causality and to the masks of keys, in every layer."""
    layer_class, options = layer_and_options
    layer = make(layer_class, randomize, **options)
    own, to_memory = (np.random.default_rng(3).random((BATCH, TARGET, length)) < 0.6 for length in (TARGET, SOURCE))
    expected = X.astype("float64")
    for each in getattr(layer, "layers", [layer]):
        masks = own & np.tri(TARGET, dtype=bool), to_memory & MEMORY_MASK[:, None]
        expected = reference.decoder_layer(each, expected, MEMORY.astype("float64"), *masks)
    result = layer(X, MEMORY, memory_mask=MEMORY_MASK, attention_mask=own, memory_attention_mask=to_memory)
    np.testing.assert_allclose(output(result), expected, atol=1e-3)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_is_its_layers_and_the_final_norm(norm_first, randomize, reference):
    stack = make(Decoder, randomize, num_layers=3, norm_first=norm_first)
    expected = X.astype("float64")
    for layer in stack.layers:
        expected = reference.decoder_layer(layer, expected, MEMORY, np.tri(TARGET, dtype=bool), MEMORY_MASK[:, None])
    if norm_first:
        expected = reference.layer_norm(stack.norm, expected)
    np.testing.assert_allclose(output(stack(X, MEMORY, memory_mask=MEMORY_MASK)), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        *(("float32", path) for path in ("plain", "dropout", "cached")),
        ("mixed_float16", "plain"),
        ("mixed_bfloat16", "cached"),
        pytest.param("mixed_float16", "dropout", marks=pytest.mark.slow),
        pytest.param("mixed_float16", "cached", marks=pytest.mark.slow),
        pytest.param("mixed_bfloat16", "plain", marks=pytest.mark.slow),
        pytest.param("mixed_bfloat16", "dropout", marks=pytest.mark.slow),
    ],
)
@pytest.mark.portable
def test_the_future_never_leaks(layer_and_options, policy, path):
    layer_class, options = layer_and_options
    rate = 0.3 if path == "dropout" else 0.0
    rates = {"dropout": rate, "attention_dropout": rate, "activation_dropout": rate}
    layer = layer_class(**{**SIZES, **rates, **options}, dtype=policy)
    layer.build(X.shape, MEMORY.shape)
    changed = X.copy()
    changed[:, 3:] += 5 * normal(BATCH, TARGET - 3, D_MODEL, seed=2)
    states = [(v, v.numpy()) for v in layer.non_trainable_variables]
    assert bool(states) == (path == "dropout")

    def run(x):
        for variable, value in states:
            variable.assign(value)
        cache = layer.empty_cache(BATCH, TARGET) if path == "cached" else None
        return output(layer(x, MEMORY, cache=cache, training=path == "dropout"), path == "cached")

    before, after = run(X), run(changed)
    assert np.array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).max() > 1e-2


@pytest.mark.parametrize("chunks", [[1] * TARGET, [2, 1, 2]], ids=str)
@pytest.mark.parametrize("projected", [False, True])
def test_cached_equals_one_full_pass(layer, chunks, projected):
    memory = layer.project_memory(keras.ops.convert_to_tensor(MEMORY)) if projected else MEMORY
    cache = layer.empty_cache(BATCH, TARGET)
    outputs, offset = [], 0
    for chunk in chunks:
        x = X[:, offset : offset + chunk]
        result, cache = layer(x, memory, memory_mask=MEMORY_MASK, cache=cache, offset=offset)
        outputs.append(output(result))
        offset += chunk
    expected = output(layer(X, MEMORY, memory_mask=MEMORY_MASK))
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), expected, atol=1e-5)


def test_beam_rows_share_their_sentences_memory(layer):
    beams = 3
    x = normal(BATCH * beams, TARGET, D_MODEL, seed=4)
    result = layer(x, layer.project_memory(keras.ops.convert_to_tensor(MEMORY)), memory_mask=MEMORY_MASK)
    repeated = (np.repeat(array, beams, axis=0) for array in (MEMORY, MEMORY_MASK))
    np.testing.assert_allclose(output(result), output(layer(x, next(repeated), memory_mask=next(repeated))), atol=1e-5)


def test_masked_positions_never_matter(layer):
    x = np.where(TARGET_MASK[..., None], X, 100 * normal(*X.shape, seed=5)).astype("float32")
    memory = np.where(MEMORY_MASK[..., None], MEMORY, 100.0).astype("float32")
    masks = {"target_mask": TARGET_MASK, "memory_mask": MEMORY_MASK}
    before, after = output(layer(X, MEMORY, **masks)), output(layer(x, memory, **masks))
    assert np.array_equal(before[TARGET_MASK], after[TARGET_MASK])
    assert np.abs(before - output(layer(X, MEMORY, target_mask=TARGET_MASK))).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True], ids=["call", "predict"])
def test_implicit_masks_equal_explicit_ones(layer, compiled):
    target, source = (3 * mask.astype("int32") for mask in (TARGET_MASK, MEMORY_MASK))
    target[1] = [2, 0, 5, 0, 1]
    embeddings = [keras.layers.Embedding(7, width, mask_zero=True) for width in (D_MODEL, D_MEMORY)]
    vectors = [to_numpy(embedding(ids)) for embedding, ids in zip(embeddings, (target, source), strict=True)]
    expected = output(layer(*vectors, target_mask=target != 0, memory_mask=source != 0))
    inputs = [keras.Input((None,)), keras.Input((None,))]
    model = keras.Model(inputs, layer(embeddings[0](inputs[0]), embeddings[1](inputs[1])))
    result = model.predict([target, source], verbose=0) if compiled else to_numpy(model([target, source]))
    np.testing.assert_allclose(result, expected, atol=1e-5)
    assert np.abs(expected - output(layer(*vectors, target_mask=target != 0))).max() > 1e-3
    assert np.abs(expected - output(layer(*vectors, memory_mask=source != 0))).max() > 1e-4


@pytest.mark.parametrize("policy", POLICIES)
def test_all_padding_is_finite(policy):
    layer = Decoder(num_layers=2, **SIZES, dtype=policy)
    nothing = np.zeros((BATCH, SOURCE), bool)
    assert np.isfinite(output(layer(X, MEMORY, target_mask=nothing[:, :TARGET], memory_mask=nothing))).all()


def test_the_targets_mask_passes_on(layer):
    embedded = keras.layers.Embedding(7, D_MODEL, mask_zero=True)(np.array([[3, 0], [4, 5]]))
    assert to_numpy(layer(embedded, MEMORY)._keras_mask).tolist() == [[True, False], [True, True]]


def test_symbolic_shapes_equal_eager_shapes(layer):
    inputs = [keras.Input((None, D_MODEL)), keras.Input((None, D_MEMORY))]
    assert tuple(layer(*inputs).shape) == (None, None, D_MODEL)
    assert layer(X, MEMORY).shape == X.shape


def test_frozen_layer_has_nothing_to_train(layer):
    assert layer.trainable_weights
    layer.trainable = False
    assert layer.trainable_weights == []


def test_num_layers_must_be_positive():
    with pytest.raises(ValueError, match="`num_layers`.*Received: num_layers=-2"):
        Decoder(num_layers=-2, **SIZES)


def test_attention_scores_are_returned_beside_the_output(layer):
    masks = {"target_mask": TARGET_MASK, "memory_mask": MEMORY_MASK}
    result, scores = layer(X, MEMORY, **masks, return_attention_scores=True)
    np.testing.assert_array_equal(output(result), output(layer(X, MEMORY, **masks)))
    layers = layer.layers if isinstance(layer, Decoder) else [layer]
    scores = scores if isinstance(layer, Decoder) else (scores,)
    x = X
    for part, weights in zip(layers, scores, strict=True):
        attended = part.self_attention.call(
            keras.ops.convert_to_tensor(x), query_mask=TARGET_MASK, use_causal_mask=True
        )
        attention = part.cross_attention.sublayer
        _, expected = attention(attended, MEMORY, value_mask=MEMORY_MASK, return_attention_scores=True)
        np.testing.assert_allclose(to_numpy(weights), to_numpy(expected), atol=1e-6)
        x = part(x, MEMORY, **masks)
    assert scores[-1].shape == (BATCH, 3, TARGET, SOURCE)


def test_attention_scores_stand_before_the_cache(layer):
    cache = layer.empty_cache(BATCH, TARGET)
    options = {"memory_mask": MEMORY_MASK, "return_attention_scores": True}
    _, expected = layer(X, MEMORY, **options)
    for offset in range(TARGET):
        x = X[:, offset : offset + 1]
        _, scores, cache = layer(x, MEMORY, **options, cache=cache, offset=offset)
        for one, other in zip(keras.tree.flatten(scores), keras.tree.flatten(expected), strict=True):
            np.testing.assert_allclose(to_numpy(one)[:, :, 0], to_numpy(other)[:, :, offset], atol=1e-5)


def test_symbolic_attention_scores_have_their_shapes(layer):
    inputs = [keras.Input((None, D_MODEL)), keras.Input((None, D_MEMORY))]
    model = keras.Model(inputs, layer(*inputs, return_attention_scores=True))
    shapes = [tuple(x.shape) for x in keras.tree.flatten(model.output)]
    found = [x.shape for x in keras.tree.flatten(model([X, MEMORY]))]
    assert shapes[0] == (None, None, D_MODEL) and {shape[1] for shape in shapes[1:]} == {3}
    assert found == [X.shape] + [(BATCH, 3, TARGET, SOURCE)] * (2 if isinstance(layer, Decoder) else 1)


def test_a_plain_symbolic_call_is_not_traced(layer_and_options, monkeypatch):
    layer_class, options = layer_and_options
    layer = layer_class(**SIZES, **options)
    monkeypatch.setattr(MultiHeadAttention, "call", None)
    target, memory = keras.Input((TARGET, D_MODEL)), keras.Input((None, D_MODEL))
    assert layer.compute_output_spec(target, memory).shape == (None, TARGET, D_MODEL)


def test_a_functional_model_may_have_a_constant_memory(layer):
    inputs = keras.Input(batch_shape=X.shape)
    model = keras.Model(inputs, layer(inputs, keras.ops.convert_to_tensor(MEMORY)))
    np.testing.assert_allclose(to_numpy(model(X)), output(layer(X, MEMORY)), atol=1e-5)


def test_batch_sizes_that_differ_are_refused_when_the_model_is_built(layer_and_options):
    layer_class, options = layer_and_options
    inputs = (keras.Input(batch_shape=(rows, TARGET, D_MODEL)) for rows in (2, 3))
    with pytest.raises(Exception, match="[Dd]imension|shape|broadcast|size"):
        layer_class(**SIZES, **options)(*inputs)
