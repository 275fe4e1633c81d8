"""The Keras contract that every exported layer keeps by itself."""

import keras
import numpy as np
import pytest

from keras_transformer import layers

to_numpy = keras.ops.convert_to_numpy
#: What is exported beside layers.
IMAGES = {"PatchEmbedding"}  # Images have no length that varies; see tests/keras_transformer/layers/test_patches.py.
FUNCTIONS = {"scaled_dot_product_attention", "attention_implementation", "set_attention_implementation"}
CACHE = {"KeyValue"}
NO_WEIGHTS = "the layer has no weights"


def as_float32(x):
    return to_numpy(keras.ops.cast(x, "float32"))


def test_every_exported_layer_is_in_the_table(table):
    assert {name.split()[0] for name in table} | FUNCTIONS | IMAGES | CACHE == set(layers.__all__)


def test_the_table_makes_what_it_says(table):
    for name, case in table.items():
        layer, kind = case.make("float32"), getattr(layers, name.split()[0])
        made = layer.positions[0] if issubclass(kind, layers.PositionScheme) else layer
        assert type(made) is kind


@pytest.mark.portable
def test_get_config_round_trip(case):
    layer = case.make("mixed_bfloat16")
    config = layer.get_config()
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == config
    assert copy.name == layer.name and copy.dtype_policy == layer.dtype_policy
    one, other = layer(*case.arrays()), copy(*case.arrays())
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
    # A stack has copies of `layer` in `layers`, and its other arguments are those of its layers.
    owners = (layer, *getattr(layer, "layers", [])[:1])
    assert own and all(any(hasattr(one, name) for one in owners) for name in own - {"layer"})


def test_save_and_load_in_a_functional_model(case, tmp_path, randomize):
    model = randomize(case.functional(case.make("float32")))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(as_float32(loaded(case.arrays())), as_float32(model(case.arrays())), atol=1e-6)


def test_symbolic_shape_equals_eager_shape(case):
    layer = case.make("float32")
    assert tuple(case.functional(layer).output.shape) == case.shape(None, None)
    assert layer(*case.arrays()).shape == case.shape()
    shapes = [array.shape for array in case.arrays()]
    assert tuple(layer.compute_output_shape(*shapes)) == case.shape()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_computes_in_half_and_keeps_float32_weights(case, policy):
    layer = case.make(policy)
    output = layer(*case.arrays(), training=True) if layer._call_has_training_arg else layer(*case.arrays())
    assert keras.backend.standardize_dtype(output.dtype) == policy.removeprefix("mixed_")
    assert np.isfinite(as_float32(output)).all()
    assert {weight.dtype for weight in layer.trainable_weights} <= {"float32"}


def sub_layers(layer):
    return list(layer._flatten_layers(include_self=False))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_the_dtype_policy_reaches_every_sub_layer(case, policy):
    layer = case.make(policy)
    layer(*case.arrays())
    parts = sub_layers(layer)
    # Attention weights are float32 whatever the policy.
    exempt = [getattr(part, "weights_dropout", None) for part in (layer, *parts)]
    for part in parts:
        expected = "float32" if any(part is one for one in exempt) else policy
        assert part.dtype_policy.name == expected, part.path


def test_build_makes_the_weights_of_a_call(case):
    """`build` makes every weight, so that loading weights needs no call."""
    built, called = case.make("float32"), case.make("float32")
    built.build(*(array.shape for array in case.arrays()))
    called(*case.arrays())
    assert [weight.shape for weight in built.weights] == [weight.shape for weight in called.weights]
    assert all(part.built for part in sub_layers(built) if part.weights)


def test_a_tf_function_gives_the_same(case, tensorflow):
    layer = case.make("float32")
    expected = layer(*case.arrays())
    signature = [
        tensorflow.TensorSpec((None,) * array.ndim if array.ndim == 2 else (None, None, array.shape[-1]), array.dtype)
        for array in case.arrays()
    ]
    traced = tensorflow.function(lambda *inputs: layer(*inputs), input_signature=signature)
    np.testing.assert_allclose(as_float32(traced(*case.arrays())), as_float32(expected), atol=1e-5)
    longer = traced(*case.arrays(lengths=[9, 4]))
    assert longer.shape == case.shape(2, 9)


@pytest.mark.slow
def test_jit_compilation_gives_the_same(case):
    layer = case.make("float32")
    model = case.functional(layer)
    model.compile(jit_compile=True)
    result = model.predict_on_batch(case.arrays())
    np.testing.assert_allclose(result, as_float32(layer(*case.arrays())), atol=1e-4)


def test_every_trainable_weight_has_a_gradient(case, few_steps):
    """One step of gradient descent moves all of them."""
    layer = case.make("float32")
    model = case.functional(layer)
    if not layer.trainable_weights:
        pytest.skip(NO_WEIGHTS)
    target = np.random.default_rng(1).normal(size=case.shape()).astype("float32")
    model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
    before = {weight.path: weight.numpy() for weight in layer.trainable_weights}
    model.train_on_batch(case.arrays(), target)
    still = [weight.path for weight in layer.trainable_weights if np.array_equal(before[weight.path], weight.numpy())]
    # Softmax is invariant to a bias of the keys.
    assert [path for path in still if not path.endswith("key/bias")] == []


def test_a_frozen_layer_has_no_trainable_weights(case):
    layer = case.make("float32")
    layer(*case.arrays())
    if not layer.weights:
        pytest.skip(NO_WEIGHTS)
    layer.trainable = False
    assert layer.trainable_weights == [] and len(layer.non_trainable_weights) == len(layer.weights)


@pytest.mark.parametrize("lengths", [(0, 3), (1, 1), (3, 0)], ids=str)
def test_lengths_of_zero_and_one_are_allowed(case, lengths):
    layer = case.make("float32")
    layer(*case.arrays())
    output = layer(*case.arrays(lengths))
    assert output.shape == case.shape(2, lengths[0])
    assert np.isfinite(as_float32(output)).all()


@pytest.mark.parametrize("lengths", [(5, 7), (0, 0)], ids=str)
def test_a_batch_without_rows_keeps_its_shape(case, lengths):
    layer = case.make("float32")
    layer(*case.arrays())
    assert layer(*case.arrays(lengths, rows=0)).shape == case.shape(0, lengths[0])


@pytest.mark.slow
def test_a_batch_without_rows_has_zero_gradients_in_a_tf_function(case, tensorflow):
    """Its gradient is 0: such a batch reaches a replica when the rows of a batch are fewer than the replicas."""
    layer = case.make("float32")
    inputs = case.functional(layer).inputs
    # With masks, whose shapes must fit.
    masked = [x if x.dtype == "int32" else keras.layers.Masking()(x) for x in inputs]
    model = keras.Model(inputs, layer(*masked))

    @tensorflow.function(
        autograph=False, input_signature=[[tensorflow.TensorSpec(x.shape, x.dtype) for x in model.inputs]]
    )
    def step(inputs):
        with tensorflow.GradientTape() as tape:
            output = model(inputs, training=True)
            loss = tensorflow.reduce_sum(output**2)
        return output, [*map(tensorflow.convert_to_tensor, tape.gradient(loss, layer.trainable_variables))]

    for rows, lengths in ((0, (5, 7)), (0, (0, 0)), (2, (0, 3)), (2, (0, 0))):
        output, gradients = step(case.arrays(lengths, rows))
        assert output.shape == case.shape(rows, lengths[0])
        assert all(np.isfinite(as_float32(x)).all() for x in (output, *gradients))
        assert rows or not any(np.any(as_float32(gradient)) for gradient in gradients)


def test_inference_is_repeatable(case):
    layer = case.make("float32")
    assert np.array_equal(as_float32(layer(*case.arrays())), as_float32(layer(*case.arrays())))
