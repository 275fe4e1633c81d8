"""LoRA and int8 of layers and models: Keras's own, applied to their parts, trained, saved and loaded."""

import gc

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import layers

pytestmark = [
    pytest.mark.portable,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Of TensorFlow.
]
to_numpy = keras.ops.convert_to_numpy
SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 13}
CONFIG = kt.TransformerConfig(vocab_size=11, **SIZES)
IDS = np.array([[4, 5, 6, 3], [7, 3, 0, 0]], "int32")
MODELS = {
    "Transformer": lambda: (kt.Transformer(CONFIG), {"source": IDS, "target": IDS[:, :3]}),
    "LanguageModel": lambda: (kt.LanguageModel(CONFIG), IDS),
    "SentenceClassifier": lambda: (kt.SentenceClassifier(CONFIG, 3), IDS),
}


@pytest.fixture(scope="module", autouse=True)
def few_objects():
    """Keras collects garbage as it quantizes: seconds among the objects of other tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(params=MODELS)
def model_and_inputs(request, randomize):
    model, inputs = MODELS[request.param]()
    return randomize(model, scale=0.3), inputs


def around_an_encoder():
    inputs = keras.Input((None, 8))
    return keras.Model(inputs, layers.Encoder(**SIZES)(inputs))


@pytest.mark.slow
def test_only_lora_weights_train_and_what_is_saved_holds_them(model_and_inputs, few_steps, tmp_path):
    model, inputs = model_and_inputs
    first = to_numpy(model(inputs))
    frozen = [to_numpy(weight) for weight in model.trainable_weights]
    weights, num_weights = [*model.trainable_weights], len(model.weights)
    model.enable_lora(2)
    np.testing.assert_allclose(to_numpy(model(inputs)), first, atol=1e-6)
    assert model.trainable_weights and all("lora_" in weight.path for weight in model.trainable_weights)
    model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
    model.train_on_batch(inputs, np.ones_like(first))
    trained = to_numpy(model(inputs))
    assert np.abs(trained - first).max() > 1e-3
    assert all(np.array_equal(to_numpy(weight), old) for weight, old in zip(weights, frozen, strict=True))
    model.save(tmp_path / "model.keras")
    loaded = kt.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(inputs)), trained, atol=1e-4)
    assert len(loaded.weights) == num_weights and loaded.trainable_weights and not loaded.compiled
    with pytest.raises(ValueError, match="`name`.*Received: name='default'"):
        model.enable_lora(2)


@pytest.mark.slow
def test_generate_sees_lora(few_steps):
    model = kt.LanguageModel(CONFIG)
    before = model.generate([[4]]).scores
    model.enable_lora(2)
    for weight in model.trainable_weights:
        weight.assign(keras.ops.ones(weight.shape))
    assert np.abs(model.generate([[4]]).scores - before).max() > 1e-3


def test_only_a_built_layer_gets_lora():
    encoder = layers.Encoder(**SIZES)
    with pytest.raises(ValueError, match="built.*Received: layer="):
        encoder.enable_lora(2)
    encoder.build((None, None, 8))
    with pytest.raises(ValueError, match="`rank`.*Received: rank=0"):
        encoder.enable_lora(0)
    encoder.enable_lora(2)
    assert len(encoder.trainable_weights) == 2 * 6  # Four projections and two of the feed-forward layer.


@pytest.mark.slow
def test_a_quantized_model_is_loaded_as_such(randomize, tmp_path):
    model, inputs = randomize(kt.LanguageModel(CONFIG), scale=0.3), IDS
    exact = to_numpy(model(inputs))
    model.quantize("int8")
    quantized = to_numpy(model(inputs))
    assert 0 < np.abs(quantized - exact).max() < 0.2 * np.abs(exact).max()
    model.save(tmp_path / "model.keras")
    loaded = kt.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(inputs)), quantized, atol=1e-5)
    dtypes = [keras.backend.standardize_dtype(weight.dtype) for weight in loaded.weights]
    assert "int8" in dtypes and dtypes == [keras.backend.standardize_dtype(weight.dtype) for weight in model.weights]
    assert loaded.generate(IDS[:, :1]).tokens.shape[0] == 2


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # Of Keras.
def test_a_quantized_layer_in_another_model_is_loaded_as_such(tmp_path):
    model, inputs = around_an_encoder(), np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=config)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(inputs)), to_numpy(model(inputs)), atol=1e-6)


def test_other_quantizations_of_a_model_are_refused():
    with pytest.raises(ValueError, match="`mode`.*Received: mode='int4'"):
        kt.LanguageModel(CONFIG).quantize("int4")


def with_variants(randomize):
    """Grouped attention and a gated feed-forward layer in a functional model, and its inputs."""
    inputs = keras.Input((None, 12))
    attention = layers.MultiHeadAttention(12, 6, num_kv_heads=2, use_bias=["query", "key", "value"], name="attention")
    feed_forward = layers.FeedForward(12, 17, "silu", gated=True, use_bias=False, name="feed_forward")
    x = layers.ResidualConnection(attention, name="first")(inputs)
    model = keras.Model(inputs, layers.ResidualConnection(feed_forward, name="second")(x))
    return randomize(model, scale=0.3), np.random.default_rng(1).normal(size=(2, 5, 12)).astype("float32")


def test_variants_get_lora_in_each_projection(randomize, few_steps, tmp_path):
    model, inputs = with_variants(randomize)
    first, parts = to_numpy(model(inputs)), [model.get_layer(name) for name in ("first", "second")]
    for part in parts:
        part.enable_lora(2)
    assert sum("lora_" in weight.path for weight in model.trainable_weights) == 2 * 7
    np.testing.assert_allclose(to_numpy(model(inputs)), first, atol=1e-6)
    model.compile(keras.optimizers.SGD(0.1), "mse", **few_steps)
    for _ in range(2):  # The first step moves the second matrices alone.
        before = [to_numpy(weight).copy() for weight in model.trainable_weights]
        model.train_on_batch(inputs, np.ones_like(first))
    moved = [not np.array_equal(old, w) for old, w in zip(before, map(to_numpy, model.trainable_weights), strict=True)]
    assert all(moved)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    np.testing.assert_allclose(to_numpy(loaded(inputs)), to_numpy(model(inputs)), atol=1e-4)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # Of Keras.
def test_variants_are_quantized_and_loaded_as_such(randomize, tmp_path):
    model, inputs = with_variants(randomize)
    exact = to_numpy(model(inputs))
    model.quantize("int8")
    quantized = to_numpy(model(inputs))
    assert 0 < np.abs(quantized - exact).max() < 0.2 * np.abs(exact).max()
    kernels = [weight for weight in model.weights if weight.name == "kernel"]
    assert len(kernels) == 7 and {keras.backend.standardize_dtype(weight.dtype) for weight in kernels} == {"int8"}
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(to_numpy(loaded(inputs)), quantized, atol=1e-5)


def test_projections_of_variants_are_frozen_one_by_one(randomize, few_steps):
    model, inputs = with_variants(randomize)
    attention, feed_forward = (model.get_layer(name).sublayer for name in ("first", "second"))
    frozen = [feed_forward.gate, attention.key_projection]
    for part in frozen:
        part.trainable = False
    model.compile(keras.optimizers.SGD(0.1), "mse", **few_steps)
    before = {weight.path: to_numpy(weight).copy() for weight in model.weights}
    model.train_on_batch(inputs, np.ones_like(inputs))
    still = {weight.path for weight in model.weights if np.array_equal(before[weight.path], to_numpy(weight))}
    assert still == {weight.path for part in frozen for weight in part.weights}
