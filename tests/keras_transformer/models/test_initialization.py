import keras
import numpy as np
import pytest

import keras_transformer as kt

SIZES = {"vocab_size": 13, "num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 6}
MODERN = {"norm": "rms", "feed_forward": "gated", "activation": "silu", "positions": "rotary", "num_kv_heads": 1}
MODELS = [
    pytest.param(kt.LanguageModel, {}, id="paper"),
    pytest.param(kt.LanguageModel, MODERN, id="modern"),
    pytest.param(kt.Transformer, {"positions": "relative", "share_embeddings": False}, id="relative"),
    pytest.param(kt.MaskedLanguageModel, {"positions": "learned", "max_length": 9}, id="learned"),
    pytest.param(kt.Transformer, MODERN, id="modern encoder-decoder", marks=pytest.mark.slow),
]


def random_weights(model):
    """The weights that are not constant, as sorted numbers."""
    weights = [np.sort(weight.ravel()) for weight in model.get_weights()]
    return [weight for weight in weights if np.ptp(weight)]


@pytest.mark.parametrize("kind, fields", MODELS)
def test_models_of_one_seed_start_alike_and_their_layers_start_unlike_each_other(kind, fields):
    config = kt.TransformerConfig(**SIZES, **fields)
    one, other = (kind(config, seed=3) for _ in range(2))
    initializers = {
        "kernel_initializer": keras.initializers.HeNormal(seed=3),
        "embeddings_initializer": keras.initializers.RandomNormal(seed=3),
    }
    third = kind(config, seed=4, **initializers)
    assert all(np.array_equal(x, y) for x, y in zip(one.get_weights(), other.get_weights(), strict=True))
    for model in (one, third):
        weights = random_weights(model)
        assert len(weights) > 8
        assert not any(np.array_equal(x, y) for i, x in enumerate(weights) for y in weights[:i])
    assert not any(np.array_equal(x, y) for x, y in zip(random_weights(one), random_weights(third), strict=True))


def test_models_of_one_seed_drop_alike():
    config = kt.TransformerConfig(**SIZES, **MODERN, dropout=0.5, attention_dropout=0.5)
    one, other = (kt.LanguageModel(config, seed=3) for _ in range(2))
    tokens = np.array([[2, 5, 6, 7, 8]])
    assert np.array_equal(one(tokens, training=True), other(tokens, training=True))
    assert not np.array_equal(one(tokens, training=True), one(tokens, training=True))


@pytest.mark.parametrize("fields", [{}, pytest.param(MODERN, marks=pytest.mark.slow)])
def test_initializers_and_regularizers_reach_the_layers_and_are_saved(fields, tmp_path):
    model = kt.LanguageModel(
        kt.TransformerConfig(**SIZES, **fields),
        kernel_initializer=keras.initializers.Constant(0.25),
        bias_initializer="ones",
        embeddings_initializer=keras.initializers.TruncatedNormal(stddev=0.02, seed=1),
        kernel_regularizer=keras.regularizers.L2(0.1),
    )
    kernels = [weight for weight in model.weights if weight.name == "kernel"]
    assert kernels and all(np.all(kernel.numpy() == 0.25) for kernel in kernels)
    assert all(np.all(weight.numpy() == 1) for weight in model.weights if weight.name == "bias")
    assert np.abs(model.embedding.embeddings.numpy()).max() < 0.05
    np.testing.assert_allclose(
        float(sum(model.losses)), 0.1 * 0.25**2 * sum(np.prod(kernel.shape) for kernel in kernels), rtol=1e-5
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_config() == model.get_config()
    assert len(loaded.losses) == len(kernels)


def test_a_classifier_starts_with_the_arguments_of_its_encoder():
    config = kt.TransformerConfig(**SIZES)
    model = kt.MaskedLanguageModel(config, kernel_regularizer="l2", seed=3)
    classifier = kt.SentenceClassifier.from_encoder(model, num_classes=2)
    assert classifier.losses and classifier.get_config()["seed"] == 3
    other = kt.SentenceClassifier.from_encoder(model, num_classes=2, seed=4)
    same = kt.SentenceClassifier.from_encoder(model, num_classes=2)
    head, other_head, same_head = (x.head.kernel.numpy() for x in (classifier, other, same))
    assert np.array_equal(head, same_head) and not np.array_equal(head, other_head)
