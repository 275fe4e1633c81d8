import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, Transformer, TransformerConfig
from keras_transformer.layers import ResidualConnection, TiedLogits, TokenEmbedding

to_numpy = keras.ops.convert_to_numpy
VOCAB, D_MODEL = 11, 5
IDS = np.array([[2, 7, 3, 0], [10, 0, 1, 0], [4, 4, 4, 4]])


@pytest.fixture
def embedding():
    layer = TokenEmbedding(VOCAB, D_MODEL)
    layer.build()
    return layer


def test_is_the_scaled_row(embedding):
    table = embedding.embeddings.numpy()
    assert table.shape == (VOCAB, D_MODEL)
    np.testing.assert_allclose(to_numpy(embedding(IDS)), table[IDS] * np.sqrt(D_MODEL), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_ids_may_have_any_integer_type(embedding, dtype):
    np.testing.assert_allclose(to_numpy(embedding(IDS.astype(dtype))), to_numpy(embedding(IDS)))


def test_vectors_have_variance_one():
    layer = TokenEmbedding(1009, 64)
    assert to_numpy(layer(np.arange(1009)[None])).std() == pytest.approx(1, rel=0.05)


def test_logits_are_products_with_the_same_matrix(embedding):
    x = np.random.default_rng(0).normal(size=(3, 4, D_MODEL)).astype("float32")
    expected = x @ embedding.embeddings.numpy().T
    np.testing.assert_allclose(to_numpy(embedding.logits(keras.ops.convert_to_tensor(x))), expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(TiedLogits(embedding)(x)), expected, atol=1e-5)


@pytest.mark.parametrize("use_bias", [False, True])
def test_logits_accept_precomputed_weights(embedding, use_bias):
    x = keras.ops.convert_to_tensor(np.random.default_rng(1).standard_normal((2, 3, D_MODEL)).astype("float32"))
    layer = TiedLogits(embedding, use_bias=use_bias)
    expected = to_numpy(layer(x))
    if use_bias:
        layer.bias.assign(np.arange(VOCAB))
        expected = expected + np.arange(VOCAB)
    matrix, bias = layer.output_weights()
    assert matrix.shape == (D_MODEL, VOCAB) and (bias is not None) == use_bias
    np.testing.assert_allclose(to_numpy(layer(x, weights=(matrix, bias))), expected, atol=1e-5)
    some = np.array([1, 4, 5])
    np.testing.assert_allclose(to_numpy(layer(x, weights=layer.output_weights(some))), expected[..., some], atol=1e-5)


def test_makes_the_implicit_mask(embedding):
    assert np.array_equal(to_numpy(embedding(IDS)._keras_mask), IDS != 0)
    assert np.array_equal(to_numpy(TokenEmbedding(VOCAB, D_MODEL, pad_id=4)(IDS)._keras_mask), IDS != 4)


def test_without_pad_id_there_is_no_mask():
    assert getattr(TokenEmbedding(VOCAB, D_MODEL, pad_id=None)(IDS), "_keras_mask", None) is None


@pytest.mark.parametrize("ids", [IDS, keras.Input((None,), dtype="int32")], ids=["eager", "symbolic"])
def test_tied_logits_end_the_mask(embedding, ids):
    logits = TiedLogits(embedding)(embedding(ids))
    assert getattr(logits, "_keras_mask", None) is None


def test_tied_logits_add_no_weights(embedding):
    start = keras.Input((None,), dtype="int32")
    model = keras.Model(start, TiedLogits(embedding)(embedding(start)))
    assert len(model.weights) == 1
    assert model.count_params() == VOCAB * D_MODEL


def functional(embedding, start):
    return keras.Model(start, TiedLogits(embedding, use_bias=True)(keras.layers.Dense(D_MODEL)(embedding(start))))


def nested(embedding, start):
    return keras.Model(start, TiedLogits(embedding)(keras.Model(start, embedding(start))(start)))


def sequential(embedding, start):
    return keras.Sequential([start, embedding, TiedLogits(embedding)])


CONFIG = {"vocab_size": VOCAB, "num_layers": 1, "d_model": 4, "num_heads": 2, "d_ff": 3}
#: Makers of models with tied logits, users' and ours.
TIED = {
    "functional": functional,
    "nested": nested,
    "sequential": sequential,
    "Transformer": lambda *_: Transformer(TransformerConfig(**CONFIG)),
    "LanguageModel": lambda *_: LanguageModel(TransformerConfig(**CONFIG)),
    "separate": lambda *_: LanguageModel(TransformerConfig(**CONFIG, share_embeddings=False)),
}


COPIES = {
    "clone_model": keras.models.clone_model,
    "from_config": lambda model: type(model).from_config(model.get_config()),
    "json": lambda model: keras.models.model_from_json(model.to_json()),
}


@pytest.mark.nightly
@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("kind", TIED)
@pytest.mark.portable
def test_a_copy_of_a_model_is_tied_like_the_model(kind, copy, randomize, tmp_path):
    made = TIED[kind](TokenEmbedding(VOCAB, D_MODEL), keras.Input((None,), dtype="int32"))
    if copy == "clone_model" and isinstance(made, (Transformer, LanguageModel)):
        pytest.skip("clone_model refuses the models of this package")
    model = randomize(made, scale=0.3)
    copied = COPIES[copy](model)
    assert [weight.shape for weight in copied.trainable_weights] == [weight.shape for weight in model.trainable_weights]
    copied.set_weights(model.get_weights())
    inputs = {"source": IDS, "target": IDS} if kind == "Transformer" else IDS
    np.testing.assert_allclose(to_numpy(copied(inputs)), to_numpy(model(inputs)), atol=1e-6)
    copied.save(tmp_path / "copy.keras")
    assert keras.saving.load_model(tmp_path / "copy.keras").count_params() == model.count_params()


def test_a_configuration_makes_several_layers():
    for layer in (TiedLogits(TokenEmbedding(VOCAB, D_MODEL)), ResidualConnection(keras.layers.Dense(D_MODEL))):
        config = layer.get_config()
        for _ in range(2):
            assert type(layer).from_config(config).get_config() == layer.get_config()


def test_tied_logits_build_an_embedding_that_was_not():
    logits = TiedLogits(TokenEmbedding(VOCAB, D_MODEL))(np.zeros((2, 3, D_MODEL), "float32"))
    assert logits.shape == (2, 3, VOCAB)


def test_symbolic_shapes_equal_eager_shapes(embedding):
    start = keras.Input((None,), dtype="int32")
    vectors = embedding(start)
    assert tuple(vectors.shape) == (None, None, D_MODEL)
    assert tuple(TiedLogits(embedding)(vectors).shape) == (None, None, VOCAB)
    assert embedding(IDS).shape == (3, 4, D_MODEL)
    assert TiedLogits(embedding)(embedding(IDS)).shape == (3, 4, VOCAB)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_computes_in_half_and_keeps_float32_weights(policy):
    layer = TokenEmbedding(VOCAB, D_MODEL, dtype=policy)
    vectors = layer(IDS)
    half = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(vectors.dtype) == half
    assert keras.backend.standardize_dtype(layer.logits(vectors).dtype) == half
    assert layer.embeddings.dtype == "float32"


@pytest.mark.parametrize("name", ["vocab_size", "d_model"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}`.*Received: {name}=0"):
        TokenEmbedding(**{"vocab_size": 3, "d_model": 3, name: 0})


def test_without_scale_is_the_row():
    layer = TokenEmbedding(VOCAB, D_MODEL, scale=False)
    np.testing.assert_allclose(to_numpy(layer(IDS)), layer.embeddings.numpy()[IDS])


def test_the_bias_is_added_to_the_logits(embedding):
    x = np.random.default_rng(0).normal(size=(3, 4, D_MODEL)).astype("float32")
    layer = TiedLogits(embedding, use_bias=True)
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(embedding.logits(x)), atol=1e-6)
    bias = np.arange(VOCAB, dtype="float32")
    layer.bias.assign(bias)
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(embedding.logits(x)) + bias, atol=1e-5)


def test_the_scale_multiplies_the_logits_and_not_the_bias(embedding):
    x = np.random.default_rng(0).normal(size=(3, 4, D_MODEL)).astype("float32")
    layer = TiedLogits(embedding, use_bias=True, scale=0.3)
    assert layer(x).shape == (3, 4, VOCAB)
    layer.bias.assign(np.arange(VOCAB))
    expected = 0.3 * to_numpy(embedding.logits(x)) + np.arange(VOCAB)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(layer(x, weights=layer.output_weights())), expected, atol=1e-5)
    assert TiedLogits.from_config(layer.get_config()).scale == 0.3
    with pytest.raises(ValueError, match="`scale`.*Received: scale=0"):
        TiedLogits(embedding, scale=0)


@pytest.mark.parametrize("given", [{"seed": 7}, {"embeddings_initializer": "he_normal", "seed": 7}])
def test_equal_seeds_give_equal_embeddings_in_every_run(given):
    tables = []
    for run, seed in enumerate((7, 7, 8)):
        keras.utils.set_random_seed(run)
        layer = TokenEmbedding(VOCAB, D_MODEL, **{**given, "seed": seed})
        layer.build()
        tables.append(to_numpy(layer.embeddings))
    np.testing.assert_array_equal(tables[0], tables[1])
    assert np.abs(tables[0] - tables[2]).max() > 0.1


def test_the_default_distribution_with_a_seed_is_that_without():
    layers = TokenEmbedding(1009, 64), TokenEmbedding(1009, 64, seed=3)
    for layer in layers:
        layer.build()
        assert to_numpy(layer.embeddings).std() == pytest.approx(1 / 8, rel=0.02)


#: Arguments of `keras.layers.Embedding`.
OF_KERAS = {
    "initializer": {"embeddings_initializer": keras.initializers.Constant(2.0)},
    "initializer with a seed": {"embeddings_initializer": keras.initializers.RandomUniform(0, 1, seed=5)},
    "regularizer": {"embeddings_initializer": "ones", "embeddings_regularizer": keras.regularizers.L2(0.5)},
    "constraint": {"embeddings_initializer": "ones", "embeddings_constraint": keras.constraints.MaxNorm(1.5)},
    "weights": {"weights": [np.arange(VOCAB * D_MODEL).reshape(VOCAB, D_MODEL)]},
    "lora": {"embeddings_initializer": "ones", "lora_rank": 2, "lora_alpha": 3},
}


@pytest.mark.parametrize("arguments", OF_KERAS.values(), ids=OF_KERAS)
def test_arguments_of_the_embedding_of_keras_do_as_there(arguments, few_steps, tmp_path):
    """Both layers are trained a step. What is saved is loaded."""
    found = []
    for layer in (
        TokenEmbedding(VOCAB, D_MODEL, pad_id=None, scale=False, **arguments),
        keras.layers.Embedding(VOCAB, D_MODEL, **arguments),
    ):
        start = keras.Input((None,), dtype="int32")
        model = keras.Model(start, layer(start))
        first = to_numpy(layer.embeddings).copy()
        if "lora_rank" in arguments:
            layer.lora_embeddings_a.assign(np.ones((VOCAB, 2)))
        model.compile(keras.optimizers.SGD(1.0), "mse", **few_steps)
        loss = model.train_on_batch(IDS, np.zeros((*IDS.shape, D_MODEL)))
        found.append((first, to_numpy(layer.embeddings), float(loss), len(model.trainable_weights)))
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras", compile=False)
        np.testing.assert_allclose(to_numpy(loaded(IDS)), to_numpy(model(IDS)), atol=1e-6)
        names = [name for name in arguments if name not in ("weights", "lora_rank", "lora_alpha")]
        for name in names:
            assert loaded.layers[-1].get_config()[name] == layer.get_config()[name] is not None
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_configuration_is_the_same_before_and_after_the_weights_are_made(embedding):
    """A copy of tied logits finds its embedding by the configuration."""
    assert TokenEmbedding(VOCAB, D_MODEL, name=embedding.name).get_config() == embedding.get_config()
    assert embedding.get_config()["embeddings_initializer"] is None
