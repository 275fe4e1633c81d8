"""Fused attention beside plain attention, on the backends that have it; and when it is used."""

import types

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig, layers, masks
from keras_transformer.layers import attention_implementation, set_attention_implementation
from keras_transformer.layers.fused_attention import is_fused
from keras_transformer.losses import LabelSmoothedCrossEntropy

BACKEND = keras.backend.backend()
has_fused = pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow has no fused attention")
to_numpy = keras.ops.convert_to_numpy
BATCH, LENGTH, MEMORY, HEADS, WIDTH, D_MODEL = 2, 7, 11, 6, 5, 22
IS_REAL = np.arange(LENGTH) < [[7], [4]]
SEGMENTS = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 2, 2, 2, 0, 0]], "int32")  # The last two rows attend to nothing.
PACKED = to_numpy(masks.segment_mask(SEGMENTS, SEGMENTS)) & (SEGMENTS != 0)[:, None]
PER_HEAD = np.random.default_rng(5).random((BATCH, HEADS, LENGTH, LENGTH)) < 0.5
BIAS = np.random.default_rng(6).normal(size=(1, HEADS, LENGTH, LENGTH)).astype("float32")

#: Arguments of the layer, and of its call.
CASES = {
    "no mask": ({}, {}),
    "causal": ({}, {"use_causal_mask": True}),
    "padding": ({}, {"query_mask": IS_REAL, "use_causal_mask": True}),
    "nothing to attend": ({}, {"attention_mask": np.arange(LENGTH)[:, None] > [3]}),
    "packed": ({}, {"attention_mask": PACKED, "use_causal_mask": True}),
    "mask of each head": ({"num_kv_heads": 3}, {"attention_mask": PER_HEAD}),
    "bias": ({}, {"attention_bias": BIAS}),
    "bias and mask": ({"num_kv_heads": 2}, {"attention_bias": BIAS, "attention_mask": PACKED}),
    "bias for all": ({}, {"attention_bias": BIAS[0, 0], "query_mask": IS_REAL}),
    "one head of keys": ({"num_kv_heads": 1, "scale": 0.9}, {"query_mask": IS_REAL}),
    "RelativePositionBias": ({"positions": layers.RelativePositionBias(8)}, {"attention_mask": PACKED}),
    "ALiBi": ({"positions": [layers.ALiBi(), layers.SlidingWindow(3)]}, {"use_causal_mask": True}),
    "QKNorm": ({"positions": [layers.QKNorm(), layers.RotaryPositions(fraction=0.9)], "num_kv_heads": 2}, {}),
}
SIZES = {"num_layers": 1, "d_model": D_MODEL, "num_heads": 3, "d_k": WIDTH, "d_v": WIDTH, "d_ff": 17}


@pytest.fixture(autouse=True)
def setting():
    """Restores the setting."""
    yield
    set_attention_implementation("auto")


@pytest.fixture
def calls(monkeypatch):
    """The keyword arguments of each call of the fused operation."""
    found, operation = [], keras.ops.dot_product_attention

    def counted(*tensors, **options):
        found.append(options)
        return operation(*tensors, **options)

    monkeypatch.setattr(keras.ops, "dot_product_attention", counted)
    return found


@pytest.fixture
def both(calls):
    """Runs a function with fused and with plain attention."""

    def both(function):
        set_attention_implementation("fused")
        fused = function()
        assert calls
        del calls[:]
        set_attention_implementation("plain")
        plain = function()
        assert not calls
        return fused, plain

    return both


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def attention(randomize, **arguments):
    positions = keras.saving.serialize_keras_object(arguments.pop("positions", []))  # A scheme is of one layer.
    made = keras.saving.deserialize_keras_object(positions)
    layer = layers.MultiHeadAttention(D_MODEL, HEADS, WIDTH, WIDTH, positions=made, **arguments)
    layer.build((BATCH, LENGTH, D_MODEL))
    return randomize(layer)


def predicted(model, inputs):
    """The outputs of a function that is traced now."""
    model.compile(jit_compile=BACKEND == "jax")
    return model.predict_on_batch(inputs)


def gradients(model, inputs, targets, loss="mse"):
    """The change of each weight by a step of gradient descent, by path."""
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(1.0), loss, jit_compile=BACKEND == "jax")
    model.train_on_batch(inputs, targets)
    changes = [old - new for old, new in zip(before, model.get_weights(), strict=True)]
    model.set_weights(before)
    return {weight.path: change for weight, change in zip(model.weights, changes, strict=True)}


def assert_gradients_equal(fused, plain):
    for path, gradient in fused.items():
        np.testing.assert_allclose(gradient, plain[path], atol=1e-4, err_msg=path)
    assert max(np.abs(gradient).max() for gradient in fused.values()) > 1e-2


def assert_equal(found, expected, atol):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=atol)


@has_fused
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_outputs_are_equal(case, both, randomize):
    arguments, options = case
    layer, x = attention(randomize, **arguments), normal(BATCH, LENGTH, D_MODEL)
    fused, plain = both(lambda: to_numpy(layer(x, **options)))
    np.testing.assert_allclose(fused, plain, atol=1e-5)


@has_fused
@pytest.mark.parametrize(
    "names",
    [["packed", "bias and mask", "QKNorm"], pytest.param([*CASES], marks=pytest.mark.nightly, id="all")],
    ids=str,
)
def test_gradients_are_equal(names, both, randomize):
    """Of several cases in one model, which compiles faster."""
    inputs = keras.Input((LENGTH, D_MODEL), batch_size=BATCH)
    x = randomize(keras.layers.Dense(D_MODEL))(inputs)
    outputs = [attention(randomize, **arguments)(x, **options) for arguments, options in map(CASES.get, names)]
    model = keras.Model(inputs, keras.ops.stack(outputs))
    data = normal(BATCH, LENGTH, D_MODEL), normal(len(names), BATCH, LENGTH, D_MODEL, seed=1)
    assert_gradients_equal(*both(lambda: gradients(model, *data)))


@has_fused
@pytest.mark.parametrize("mask", ["attention_mask", "query_mask"])
def test_a_query_without_keys_gives_zeros(mask, calls, randomize):
    set_attention_implementation("fused")
    layer = attention(randomize, use_bias=False)
    given = (
        {"attention_mask": PACKED}
        if mask == "attention_mask"
        else {"query_mask": np.array([[True], [False]]) & IS_REAL}
    )
    result = to_numpy(layer(normal(BATCH, LENGTH, D_MODEL), **given))
    is_empty = ~PACKED.any(-1) if mask == "attention_mask" else np.repeat([[False], [True]], LENGTH, axis=1)
    assert calls and not result[is_empty].any() and np.abs(result[~is_empty]).min() > 0


@has_fused
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy, calls, randomize):
    """No further from float32 than plain attention, up to the rounding of one number."""
    x, options = normal(BATCH, LENGTH, D_MODEL), {"attention_mask": PACKED, "attention_bias": BIAS}
    layer = attention(randomize, num_kv_heads=2, dtype=policy)
    exact = attention(randomize, num_kv_heads=2)
    expected = to_numpy(exact(x, **options))
    errors = {}
    for implementation in ("plain", "fused"):
        set_attention_implementation(implementation)
        result = layer(x, **options)
        assert keras.backend.standardize_dtype(result.dtype) == policy.removeprefix("mixed_")
        errors[implementation] = np.abs(to_numpy(keras.ops.cast(result, "float32")) - expected).max()
    assert bool(calls) == (policy == "mixed_bfloat16" or BACKEND == "torch")
    epsilon = 2.0**-8 if policy == "mixed_bfloat16" else 2.0**-11
    assert errors["fused"] <= errors["plain"] + epsilon * np.abs(expected).max()


@has_fused
def test_cross_attention_and_blocks(both, randomize):
    x, memory = normal(BATCH, LENGTH, D_MODEL), normal(BATCH, MEMORY, D_MODEL, seed=1)
    memory_mask = np.arange(MEMORY) < [[3], [11]]
    inputs = [keras.Input(array.shape[1:], dtype=array.dtype) for array in (x, memory, IS_REAL, memory_mask)]
    encoded = layers.Encoder(**SIZES)(inputs[1], mask=inputs[3])
    decoded = layers.Decoder(**SIZES)(inputs[0], encoded, target_mask=inputs[2], memory_mask=inputs[3])
    model = randomize(keras.Model(inputs, [encoded, decoded]))
    assert_equal(*both(lambda: predicted(model, [x, memory, IS_REAL, memory_mask])), 1e-5)


IN_ONE_ROW = {
    "source": np.array([[4, 5, 6, 7, 3, 8, 9, 3, 0]], "int32"),
    "source_segments": np.array([[1, 1, 1, 1, 1, 2, 2, 2, 0]], "int32"),
    "target": np.array([[2, 12, 13, 2, 14, 0]], "int32"),
    "target_segments": np.array([[1, 1, 1, 2, 2, 0]], "int32"),
}


@pytest.fixture
def transformer(randomize):
    return randomize(Transformer(TransformerConfig(vocab_size=19, **SIZES, dropout=0.0)), scale=0.3)


@has_fused
def test_a_transformer_on_packed_rows(both, transformer):
    fused, plain = both(lambda: predicted(transformer, IN_ONE_ROW))
    np.testing.assert_allclose(fused, plain, atol=1e-5)


@has_fused
@pytest.mark.nightly
def test_gradients_of_a_transformer_on_packed_rows(both, transformer):
    labels, loss = np.array([[12, 13, 3, 14, 3, 0]], "int32"), LabelSmoothedCrossEntropy(0.1, pad_id=0)
    assert_gradients_equal(*both(lambda: gradients(transformer, IN_ONE_ROW, labels, loss)))


@has_fused
@pytest.mark.nightly
def test_a_search_encodes_fused_and_decodes_the_same(both, randomize):
    config = TransformerConfig(vocab_size=19, **SIZES)

    def search():
        return randomize(Transformer(config)).generate(IN_ONE_ROW["source"]).tokens

    np.testing.assert_array_equal(*both(search))


x = normal(BATCH, LENGTH, D_MODEL)
PLAIN = {
    "weights": lambda layer: layer(x, return_attention_scores=True),
    "cache": lambda layer: layer(x, cache=layer.empty_cache(BATCH, LENGTH), offset=0),
    "projected memory": lambda layer: layer(x, layer.project(keras.ops.convert_to_tensor(x))),
}


@has_fused
@pytest.mark.parametrize("call", PLAIN.values(), ids=PLAIN)
def test_calls_that_use_plain_attention(call, calls, randomize):
    layer = attention(randomize)
    expected = call(layer)
    set_attention_implementation("fused")
    found = call(layer)
    assert not calls
    for one, other in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@has_fused
@pytest.mark.parametrize("option", [{"dropout": 0.3}, {"soft_cap": 2.0}], ids=str)
def test_layers_that_use_plain_attention(option, calls, randomize):
    set_attention_implementation("fused")
    attention(randomize, **option)(x)
    assert not calls


@has_fused
def test_other_widths_of_values_are_fused_on_pytorch_only(both, calls, randomize):
    set_attention_implementation("fused")
    layer = randomize(layers.MultiHeadAttention(D_MODEL, HEADS, WIDTH, WIDTH + 2))
    fused = to_numpy(layer(x))
    assert bool(calls) == (BACKEND == "torch")
    set_attention_implementation("plain")
    np.testing.assert_allclose(fused, to_numpy(layer(x)), atol=1e-5)


def test_the_default_is_plain_on_a_cpu(calls, randomize):
    assert attention_implementation() == "auto"
    attention(randomize)(x)
    assert not calls


def heads(device, dtype="bfloat16"):
    """What `is_fused` reads of a tensor."""
    return types.SimpleNamespace(device=types.SimpleNamespace(type=device), shape=(2, 3, 7, 5), dtype=dtype)


@pytest.mark.parametrize(
    ("device", "fused"),
    [("cpu", ["fused"]), ("gpu", ["auto", "fused"]), ("tpu", [] if BACKEND == "jax" else ["fused"])],
)
def test_devices(device, fused, monkeypatch):
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: [f"{device}:0", f"{device}:1"])
    tensor = heads("cuda" if device == "gpu" else device)
    found = []
    for implementation in ("auto", "fused", "plain")[:: 2 if BACKEND == "tensorflow" else 1]:
        set_attention_implementation(implementation)
        found += [implementation] * is_fused(tensor, tensor)
    assert found == ([] if BACKEND == "tensorflow" else fused)


@has_fused
def test_keras_may_disable_flash_attention(calls, randomize):
    set_attention_implementation("fused")
    keras.config.disable_flash_attention()
    try:
        attention(randomize)(x)
    finally:
        keras.config.enable_flash_attention()
    assert [call["flash_attention"] for call in calls] == [False]


@has_fused
@pytest.mark.parametrize(("length", "expected"), [(6, [None, None]), (7, [None, False])])
def test_odd_lengths_with_a_bias_have_no_flash_kernel(length, expected, calls, randomize):
    """The gradient of cuDNN's kernel fails for them."""
    set_attention_implementation("fused")
    layer = attention(randomize)
    layer(x[:, :length])
    layer(x[:, :length], use_causal_mask=True)
    assert [call["flash_attention"] for call in calls] == expected


@pytest.mark.parametrize("value", ["flash", None, True])
def test_an_unknown_implementation_is_refused(value):
    with pytest.raises(ValueError, match="`implementation` must be one of auto, fused, plain. Received: .*=") as error:
        set_attention_implementation(value)
    assert repr(value) in str(error.value) and attention_implementation() == "auto"


@pytest.mark.skipif(BACKEND != "tensorflow", reason="other backends have fused attention")
def test_fused_is_refused_on_tensorflow():
    with pytest.raises(ValueError, match="`implementation` must not be 'fused' .*KERAS_BACKEND=tensorflow"):
        set_attention_implementation("fused")
