"""One table of every exported layer, and the Keras contract that each of them keeps."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest

from keras_transformer import layers

to_numpy = keras.ops.convert_to_numpy
BATCH, TARGET, SOURCE, D_MODEL, VOCAB = 2, 5, 7, 22, 19
BLOCK = {"d_model": D_MODEL, "num_heads": 3, "d_ff": 17, "d_k": 13, "d_v": 11}
POLICIES = ["float32", "mixed_float16", "mixed_bfloat16"]


class Case(NamedTuple):
    """How to make a layer of some dtype, and the shapes of its inputs: `None` as width means ids."""

    make: Callable
    inputs: tuple = ((TARGET, D_MODEL),)
    width: int = D_MODEL


def simple(name, inputs=((TARGET, D_MODEL),), width=D_MODEL, **arguments):
    return Case(lambda dtype: getattr(layers, name)(**arguments, dtype=dtype), inputs, width)


def residual(dtype):
    return layers.ResidualConnection(layers.FeedForward(D_MODEL, 17, dtype=dtype), dropout=0.1, dtype=dtype)


def tied_logits(dtype):
    return layers.TiedLogits(layers.TokenEmbedding(VOCAB, D_MODEL, dtype=dtype), use_bias=True, dtype=dtype)


WITH_MEMORY = ((TARGET, D_MODEL), (SOURCE, D_MODEL))
LAYERS = {
    "Decoder": simple("Decoder", WITH_MEMORY, num_layers=1, **BLOCK, norm_first=True, attention_dropout=0.1),
    "DecoderLayer": simple("DecoderLayer", WITH_MEMORY, **BLOCK),
    "Encoder": simple("Encoder", num_layers=1, **BLOCK, final_norm=True),
    "EncoderLayer": simple("EncoderLayer", **BLOCK, norm_first=True, activation_dropout=0.2),
    "FeedForward": simple("FeedForward", width=19, d_model=19, d_ff=17, activation="gelu", dropout=0.1),
    "LearnedPositionalEmbedding": simple("LearnedPositionalEmbedding", max_length=11),
    "MultiHeadAttention": simple(
        "MultiHeadAttention", WITH_MEMORY, 19, d_model=19, num_heads=3, d_k=13, d_v=11, dropout=0.1
    ),
    "PositionalEncoding": simple("PositionalEncoding", max_wavelength=100.0, layout="halves"),
    "ResidualConnection": Case(residual),
    "TiedLogits": Case(tied_logits, width=VOCAB),
    "TokenEmbedding": simple(
        "TokenEmbedding", ((TARGET, None),), vocab_size=VOCAB, d_model=D_MODEL, pad_id=1, scale=False
    ),
}
FUNCTIONS = {"scaled_dot_product_attention"}


@pytest.fixture(params=LAYERS)
def case(request):
    return LAYERS[request.param]


def arrays(case, lengths=None):
    """Example inputs, of the case's lengths or of others."""
    rng = np.random.default_rng(0)
    shapes = [(length, width) for length, width in case.inputs]
    for i, length in enumerate(lengths or ()):
        shapes[i : i + 1] = [(length, shapes[i][1])] if i < len(shapes) else []
    return [
        rng.integers(0, VOCAB, (BATCH, length)).astype("int32")
        if width is None
        else rng.normal(size=(BATCH, length, width)).astype("float32")
        for length, width in shapes
    ]


def functional(layer, case):
    inputs = [
        keras.Input((None,), dtype="int32") if width is None else keras.Input((None, width)) for _, width in case.inputs
    ]
    return keras.Model(inputs, layer(*inputs))


def as_float32(x):
    return to_numpy(keras.ops.cast(x, "float32"))


def test_every_exported_layer_is_in_the_table():
    assert set(LAYERS) | FUNCTIONS == set(layers.__all__)


def test_the_table_makes_what_it_says():
    for name, case in LAYERS.items():
        assert type(case.make("float32")) is getattr(layers, name)


def test_get_config_round_trip(case):
    layer = case.make("mixed_bfloat16")
    config = layer.get_config()
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == config
    assert copy.name == layer.name and copy.dtype_policy == layer.dtype_policy
    one, other = layer(*arrays(case)), copy(*arrays(case))
    assert one.shape == other.shape and one.dtype == other.dtype
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in layer.weights]


def test_registered_under_the_packages_name(case):
    layer = case.make("float32")
    registered = keras.saving.get_registered_name(type(layer))
    assert registered == f"keras_transformer>{type(layer).__name__}"
    serialized = keras.saving.serialize_keras_object(layer)
    assert type(keras.saving.deserialize_keras_object(serialized)) is type(layer)


def test_every_argument_is_an_attribute_and_in_the_config(case):
    layer = case.make("float32")
    own = set(layer.get_config()) - {"name", "trainable", "dtype"}
    assert own and all(hasattr(layer, name) for name in own)


def test_save_and_load_in_a_functional_model(case, tmp_path, randomize):
    model = randomize(functional(case.make("float32"), case))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(as_float32(loaded(arrays(case))), as_float32(model(arrays(case))), atol=1e-6)


def test_symbolic_shape_equals_eager_shape(case):
    layer = case.make("float32")
    assert tuple(functional(layer, case).output.shape) == (None, None, case.width)
    assert layer(*arrays(case)).shape == (BATCH, TARGET, case.width)
    shapes = [array.shape for array in arrays(case)]
    assert tuple(layer.compute_output_shape(*shapes)) == (BATCH, TARGET, case.width)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(case, policy):
    layer = case.make(policy)
    output = layer(*arrays(case), training=True) if layer._call_has_training_arg else layer(*arrays(case))
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")
    assert np.isfinite(as_float32(output)).all()
    assert {weight.dtype for weight in layer.trainable_weights} <= {"float32"}


def sub_layers(layer):
    return list(layer._flatten_layers(include_self=False))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_the_dtype_policy_reaches_every_sub_layer(case, policy):
    layer = case.make(policy)
    layer(*arrays(case))
    parts = sub_layers(layer)
    # Attention weights are float32 whatever the policy.
    exempt = [getattr(part, "weights_dropout", None) for part in (layer, *parts)]
    for part in parts:
        expected = "float32" if any(part is one for one in exempt) else policy
        assert part.dtype_policy.name == expected, part.path


def test_built_explicitly_as_by_a_call(case):
    """`build` makes every weight, so that loading weights needs no call."""
    built, called = case.make("float32"), case.make("float32")
    built.build(*(array.shape for array in arrays(case)))
    called(*arrays(case))
    assert [weight.shape for weight in built.weights] == [weight.shape for weight in called.weights]
    assert all(part.built for part in sub_layers(built) if part.weights)


def test_in_a_tf_function(case, tensorflow):
    layer = case.make("float32")
    expected = layer(*arrays(case))
    signature = [
        tensorflow.TensorSpec((None,) * array.ndim if array.ndim == 2 else (None, None, array.shape[-1]), array.dtype)
        for array in arrays(case)
    ]
    traced = tensorflow.function(lambda *inputs: layer(*inputs), input_signature=signature)
    np.testing.assert_allclose(as_float32(traced(*arrays(case))), as_float32(expected), atol=1e-5)
    longer = traced(*arrays(case, lengths=[9, 4]))
    assert longer.shape == (BATCH, 9, case.width)


def test_jit_compiled(case):
    layer = case.make("float32")
    model = functional(layer, case)
    model.compile(jit_compile=True)
    result = model.predict_on_batch(arrays(case))
    np.testing.assert_allclose(result, as_float32(layer(*arrays(case))), atol=1e-4)


def test_every_trainable_weight_has_a_gradient(case, few_steps):
    """One step of gradient descent moves all of them."""
    layer = case.make("float32")
    model = functional(layer, case)
    if not layer.trainable_weights:
        return
    target = np.random.default_rng(1).normal(size=(BATCH, TARGET, case.width)).astype("float32")
    model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
    before = {weight.path: weight.numpy() for weight in layer.trainable_weights}
    model.train_on_batch(arrays(case), target)
    still = [weight.path for weight in layer.trainable_weights if np.array_equal(before[weight.path], weight.numpy())]
    # Softmax is invariant to a bias of the keys.
    assert [path for path in still if not path.endswith("key/bias")] == []


def test_frozen(case):
    layer = case.make("float32")
    layer(*arrays(case))
    layer.trainable = False
    assert layer.trainable_weights == [] and len(layer.non_trainable_weights) == len(layer.weights)


@pytest.mark.parametrize("lengths", [(0, 3), (1, 1), (3, 0)], ids=str)
def test_lengths_of_zero_and_one(case, lengths):
    layer = case.make("float32")
    layer(*arrays(case))
    output = layer(*arrays(case, lengths))
    assert output.shape == (BATCH, lengths[0], case.width)
    assert np.isfinite(as_float32(output)).all()


def test_a_batch_of_zero(case):
    layer = case.make("float32")
    layer(*arrays(case))
    assert layer(*(array[:0] for array in arrays(case))).shape == (0, TARGET, case.width)


def test_inference_is_repeatable(case):
    layer = case.make("float32")
    assert np.array_equal(as_float32(layer(*arrays(case))), as_float32(layer(*arrays(case))))
