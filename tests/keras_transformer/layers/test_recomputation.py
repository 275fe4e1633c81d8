"""`keras.RematScope` around blocks, stacks and models: the same losses, gradients and seeds, with less memory."""

import contextlib
import re

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import layers

pytestmark = pytest.mark.portable
to_numpy = keras.ops.convert_to_numpy
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 13, "dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
CONFIG = {"vocab_size": 11, "num_layers": 2, **SIZES}
IDS = np.array([[4, 5, 6, 7, 3], [7, 3, 0, 0, 0], [9, 8, 7, 3, 0]], "int32")
NAMES = ["layer_0", "layer_1", "stack"]


def embedded(stack):
    """A plain Keras model: ids -> embeddings -> stack."""
    ids = keras.Input((None,), dtype="int32")
    x = layers.TokenEmbedding(11, 8)(ids)
    memory = [keras.layers.Dense(8)(x)] if isinstance(stack, layers.Decoder | layers.DecoderLayer) else []
    return keras.Model(ids, keras.layers.Dense(11)(stack(x, *memory)))


MODELS = {
    "Transformer": lambda **kwargs: kt.Transformer(kt.TransformerConfig(**CONFIG), **kwargs),
    "LanguageModel": lambda **kwargs: kt.LanguageModel(
        kt.TransformerConfig(**CONFIG, positions="relative", qk_norm=True, feed_forward="gated"), **kwargs
    ),
    "MaskedLanguageModel": lambda **kwargs: kt.MaskedLanguageModel(kt.TransformerConfig(**CONFIG), **kwargs),
    "EncoderLayer": lambda: embedded(layers.EncoderLayer(**SIZES, name="stack")),
    "DecoderLayer": lambda: embedded(layers.DecoderLayer(**SIZES, name="stack")),
    "CausalDecoderLayer": lambda: embedded(layers.CausalDecoderLayer(**SIZES, norm_first=True, name="stack")),
    "Encoder": lambda: embedded(layers.Encoder(num_layers=2, **SIZES, name="stack")),
    "Decoder": lambda: embedded(layers.Decoder(num_layers=2, **SIZES)),
    "CausalDecoder": lambda: embedded(layers.CausalDecoder(num_layers=2, **SIZES)),
}


def scope(remat):
    return keras.RematScope("list_of_layers", layer_names=NAMES) if remat else contextlib.nullcontext()


def trained(make, remat, **options):
    """The losses of two steps of gradient descent, the weights, and the state of the seeds."""
    keras.utils.set_random_seed(5)
    with scope(remat):
        model = make()
    inputs = {"source": IDS, "target": IDS[:, ::-1]} if isinstance(model, kt.Transformer) else IDS
    model.compile(keras.optimizers.SGD(1.0), kt.losses.LabelSmoothedCrossEntropy(), **options)
    losses = [float(model.train_on_batch(inputs, IDS)) for _ in range(2)]
    seeds = [to_numpy(x) for x in model.non_trainable_variables]
    return losses, [to_numpy(x) for x in model.trainable_weights], seeds


def assert_equal(make, rtol=1e-4, atol=1e-5, **options):
    (losses, weights, seeds), (found, found_weights, found_seeds) = (trained(make, x, **options) for x in (False, True))
    np.testing.assert_allclose(found, losses, rtol=rtol)
    for one, other in zip(found_weights, weights, strict=True):
        np.testing.assert_allclose(one, other, atol=atol)
    for one, other in zip(found_seeds, seeds, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_losses_gradients_and_seeds_are_those_without(name, few_steps):
    assert_equal(MODELS[name], **few_steps)


@pytest.mark.nightly
@pytest.mark.parametrize("xla", [True, False])
def test_a_compiled_model_is_that_without(xla):
    assert_equal(MODELS["Transformer"], jit_compile=xla and keras.backend.backend() != "torch")


@pytest.mark.slow
def test_mixed_precision_is_that_without(few_steps):
    assert_equal(lambda: MODELS["MaskedLanguageModel"](dtype="mixed_bfloat16"), rtol=0.02, atol=0.02, **few_steps)


@keras.saving.register_keras_serializable(package="test_recomputation")
class Counting(keras.layers.Layer):
    """Counts its runs."""

    runs = 0

    def call(self, inputs, training=None):
        Counting.runs += bool(training)
        return keras.ops.tanh(inputs)


@pytest.mark.parametrize(("remat", "runs"), [(False, 1), (True, 2)])
def test_activations_are_computed_twice(remat, runs, few_steps):
    with scope(remat):
        block = layers.EncoderLayer(8, 2, feed_forward=Counting(), name="stack")
        model = embedded(block)
    if keras.backend.backend() == "jax":
        import jax

        arrays = [[v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables)]
        traced = str(jax.make_jaxpr(lambda *xs: model.stateless_call(*xs, IDS, training=True)[0])(*arrays))
        assert len(re.findall(r"\b(remat2?|checkpoint)\[", traced)) == runs - 1
        return
    Counting.runs = 0
    model.compile("sgd", kt.losses.LabelSmoothedCrossEntropy(), **few_steps)
    model.train_on_batch(IDS, IDS)
    assert Counting.runs == runs
    model.predict_on_batch(IDS)
    assert Counting.runs == runs


def test_saving_begins_no_call(tmp_path):
    """Keras reads the attributes of a layer that it saves. A call that stays open would decide about later dropout."""
    inputs = keras.Input((3, 8))
    keras.Model(inputs, layers.FeedForward(8, 13)(inputs)).save(tmp_path / "model.keras")
    x, dropout = np.ones((2, 3, 8), "float32"), layers.Dropout(0.5)
    dropout(x, training=True)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(dropout(x)), x)


@pytest.mark.slow
def test_a_recomputed_model_generates_and_is_saved_as_others(tmp_path):
    with scope(True):
        model = MODELS["Transformer"]()
    model.save(tmp_path / "model.keras")
    found, plain = (m.generate(IDS).tokens for m in (model, kt.load_model(tmp_path / "model.keras")))
    np.testing.assert_array_equal(found, plain)
