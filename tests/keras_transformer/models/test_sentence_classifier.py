import keras
import numpy as np
import pytest

from keras_transformer import SentenceClassifier, TransformerConfig

pytestmark = pytest.mark.portable

to_numpy = keras.ops.convert_to_numpy
SIZES = {"vocab_size": 19, "num_layers": 2, "d_model": 22, "num_heads": 3, "d_k": 5, "d_v": 7, "d_ff": 13}
IDS = np.array([[4, 5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0, 0]], "int32")


def make(randomize, pooling="mean", dtype=None, **fields):
    config = TransformerConfig(**{**SIZES, **fields})
    return randomize(SentenceClassifier(config, 5, pooling, dtype=dtype), scale=0.3)


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_logits_are_of_the_pooled_encoder(pooling, randomize, reference):
    model = make(randomize, pooling)
    table = model.embedding.embeddings.numpy().astype("float64")
    x = table[IDS] * np.sqrt(22) + reference.positional_encoding(7, 22)
    for layer in model.encoder.layers:
        x = reference.encoder_layer(layer, x, (IDS != 0)[:, None])
    pool = {"mean": lambda x: x.mean(axis=0), "first": lambda x: x[0], "max": lambda x: x.max(axis=0)}[pooling]
    pooled = np.stack([pool(x[0]), pool(x[1, :3])])
    expected = reference.dense(model.head, pooled)
    np.testing.assert_allclose(to_numpy(model(IDS)), expected, atol=1e-3)
    np.testing.assert_allclose(model.predict(IDS, verbose=0), expected, atol=1e-3)


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_padding_never_matters(pooling, randomize):
    model = make(randomize, pooling)
    alone = to_numpy(model(IDS[1:, :3]))
    np.testing.assert_allclose(to_numpy(model(IDS))[1:], alone, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_the_logits_of_an_empty_sentence_are_the_bias_of_the_head(randomize, pooling):
    model = make(randomize, pooling)
    for nothing in (np.zeros((2, length), "int32") for length in (0, 3)):
        np.testing.assert_allclose(to_numpy(model(nothing)), np.tile(to_numpy(model.head.bias), (2, 1)), atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_logits_are_float32(policy, randomize):
    model = make(randomize, dtype=policy)
    assert keras.backend.standardize_dtype(model(IDS).dtype) == "float32"
    np.testing.assert_allclose(to_numpy(model(IDS)), to_numpy(make(randomize)(IDS)), atol=0.3)


def test_a_saved_model_is_equal(randomize, tmp_path):
    model = make(randomize, "first", norm_first=True, positions="learned", max_length=7)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.config, loaded.num_classes, loaded.pooling) == (model.config, 5, "first")
    np.testing.assert_array_equal(to_numpy(loaded(IDS)), to_numpy(model(IDS)))


@pytest.mark.slow
def test_fit_lowers_the_loss(randomize, few_steps):
    model = make(randomize)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, **few_steps)
    losses = [float(model.train_on_batch(IDS, np.array([1, 4]))) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_wrong_arguments_are_refused():
    config = TransformerConfig(**SIZES)
    with pytest.raises(ValueError, match="`num_classes`.*Received: num_classes=0"):
        SentenceClassifier(config, 0)
    with pytest.raises(ValueError, match="`pooling`.*Received: pooling='sum'"):
        SentenceClassifier(config, 2, "sum")
    with pytest.raises(ValueError, match="`config`.*Received: config=None"):
        SentenceClassifier(None, 2)
