"""Adapters of models and layers: trained, saved, loaded, switched and merged."""

import json
import re

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import layers

pytestmark = [
    pytest.mark.portable,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Of TensorFlow.
]
SIZES = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 13}
CONFIG = kt.TransformerConfig(vocab_size=11, **SIZES)
SMALL = kt.TransformerConfig(vocab_size=11, **{**SIZES, "num_layers": 1})
IDS = np.array([[4, 5, 6, 3], [7, 3, 0, 0]], "int32")
MODELS = {
    "Transformer": lambda: (kt.Transformer(CONFIG), {"source": IDS, "target": IDS[:, :3]}),
    "LanguageModel": lambda: (kt.LanguageModel(CONFIG), IDS),
    "MaskedLanguageModel": lambda: (kt.MaskedLanguageModel(CONFIG), IDS),
    "SentenceClassifier": lambda: (kt.SentenceClassifier(CONFIG, 3), IDS),
}
QUERY = "encoder/layer_0/self_attention/attention/query"


def values(x):
    return np.array(keras.ops.convert_to_numpy(x))


def classifier(**options):
    return kt.SentenceClassifier(CONFIG, 3, **options)


def fill(layer, seed):
    """Gives the matrices of the active adapter random values."""
    rng = np.random.default_rng(seed)
    for weight in layer.trainable_weights:
        assert "lora_" in weight.path
        weight.assign(rng.normal(0, 0.3, weight.shape))


def with_adapters(*names, **options):
    """A classifier with an adapter of each name, the outputs of its base, and those with each adapter."""
    model = classifier()
    outputs = {None: values(model(IDS))}
    for i, name in enumerate(names):
        model.enable_lora(2, name=name, **options)
        fill(model, i)
        outputs[name] = values(model(IDS))
    return model, outputs


@pytest.fixture(scope="module")
def law():
    """A model with an adapter, and its outputs, for tests that do not change it."""
    return with_adapters("law")


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_an_adapter_is_trained_saved_and_loaded_into_a_copy_of_the_base(kind, few_steps, tmp_path):
    model, inputs = MODELS[kind]()
    base = [values(weight) for weight in model.weights]
    model.enable_lora(2, lora_alpha=3, targets=["query", "value"], name="law")
    model.compile(keras.optimizers.Adam(0.1), "mse", **few_steps)
    labels = np.ones_like(values(model(inputs)))
    first = values(model(inputs))
    for _ in range(2):
        model.train_on_batch(inputs, labels)
    trained = values(model(inputs))
    assert np.abs(trained - first).max() > 1e-3
    model.save_adapter(tmp_path / "law.npz")
    other, _ = MODELS[kind]()
    other.set_weights(base)
    other.load_adapter(tmp_path / "law.npz", "law")
    np.testing.assert_array_equal(values(other(inputs)), trained)
    other.compile(keras.optimizers.Adam(0.1), "mse", **few_steps)
    other.train_on_batch(inputs, labels)
    assert np.abs(values(other(inputs)) - trained).max() > 1e-3
    for one in (model, other):
        one.set_adapter(None)
        assert all(np.array_equal(values(weight), old) for weight, old in zip(one.weights, base, strict=True))


def test_adapters_are_switched_and_none_is_the_base_model():
    model, outputs = with_adapters("law", "medicine")
    count = len(classifier().weights)
    for name in ("law", None, "medicine", "law", "law", None, None):
        model.set_adapter(name)
        np.testing.assert_array_equal(values(model(IDS)), outputs[name])
        assert bool(name) == any("lora_" in weight.path for weight in model.weights)
    assert len(model.weights) == len(model.trainable_weights) == count
    assert np.abs(outputs["law"] - outputs["medicine"]).max() > 1e-3


def test_frozen_weights_stay_frozen_without_an_adapter():
    model = classifier()
    model.encoder.trainable = False
    trainable = [weight.path for weight in model.trainable_weights]
    model.enable_lora(2)
    model.set_adapter(None)
    assert [weight.path for weight in model.trainable_weights] == trainable


@pytest.mark.slow
def test_generate_sees_another_adapter(randomize):
    model = randomize(kt.LanguageModel(SMALL))

    def scores():
        return model.generate([[4]]).scores

    expected = {None: scores()}
    for name, rank in (("law", 2), ("medicine", 2), ("news", 3)):  # The first two have weights of equal shapes.
        model.enable_lora(rank, name=name)
        fill(model, len(expected))
        expected[name] = scores()
    assert len({float(x.item()) for x in expected.values()}) == 4
    for name in ("law", "medicine", None, "news"):
        model.set_adapter(name)
        np.testing.assert_array_equal(scores(), expected[name])


@pytest.mark.slow
def test_generate_sees_an_adapter_of_a_layer_of_the_model(randomize):
    model = randomize(kt.LanguageModel(SMALL))
    before = model.generate([[4]]).scores
    model.decoder.enable_lora(2)
    fill(model.decoder, 1)
    assert np.abs(model.generate([[4]]).scores - before).max() > 1e-3


@pytest.mark.nightly
def test_an_ensemble_sees_the_adapters_of_its_models(randomize):
    model = randomize(kt.Transformer(SMALL))
    ensemble = kt.Ensemble([model])
    before = ensemble.generate([[4, 3]]).scores
    model.enable_lora(2)
    fill(model, 1)
    after = ensemble.generate([[4, 3]]).scores
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(model.generate([[4, 3]]).scores, after, atol=1e-5)


def test_equal_adapters_need_no_new_compilation(few_steps):
    model, _ = with_adapters("law", "medicine")
    model.compile("sgd", "mse", **few_steps)
    model.set_adapter("law")
    assert model.compiled
    model.set_adapter(None)
    with pytest.raises(ValueError, match="compile"):  # Keras's sentence: the optimizer was for other weights.
        model.fit(IDS, np.ones((2, 3)), verbose=0)


@pytest.mark.slow
def test_merging_makes_a_plain_model_of_the_active_adapter(tmp_path):
    model, outputs = with_adapters("law", "medicine", lora_alpha=3)
    model.set_adapter("law")
    model.merge_lora()
    np.testing.assert_allclose(values(model(IDS)), outputs["law"], atol=1e-5)
    plain = classifier()
    assert [weight.path for weight in model.trainable_weights] == [weight.path for weight in plain.trainable_weights]
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    loaded = kt.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(values(loaded(IDS)), outputs["law"], atol=1e-5)
    assert len(loaded.weights) == len(plain.weights) and loaded.compiled
    with pytest.raises(ValueError, match=r"must be active. Received: name=None, adapters=\[\]"):
        model.merge_lora()
    model.enable_lora(2, name="law")  # A new adapter of the new weights.


def test_merging_keeps_the_precision_of_the_weights():
    model = classifier(dtype="mixed_bfloat16")
    kernel = model.head.kernel
    before = values(kernel)
    model.enable_lora(2, targets=["head"])
    fill(model, 1)
    a, b = map(values, model.trainable_weights)
    model.merge_lora()
    np.testing.assert_allclose(values(kernel), before + a @ b, atol=1e-6)


@pytest.mark.nightly
def test_a_quantized_base_has_adapters():
    model = classifier()
    model.quantize("int8")
    base = values(model(IDS))
    model.enable_lora(2)
    fill(model, 1)
    adapted = values(model(IDS))
    model.set_adapter(None)
    np.testing.assert_array_equal(values(model(IDS)), base)
    model.set_adapter("default")
    model.merge_lora()
    assert np.abs(values(model(IDS)) - adapted).max() < 0.2 * np.abs(adapted - base).max()


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        (None, 14),
        (["query"], 2),
        (["query", "value"], 4),
        (("layer_1",), 6),
        (["encoder/layer_*/feed_forward"], 4),
        (["*er", "head"], 13),
        (["embedding", "encoder/layer_0/self_attention/attention/query"], 2),
    ],
)
def test_targets_are_names_in_the_paths(targets, count):
    model = classifier()
    model.enable_lora(2, targets=targets)
    assert len(model.trainable_weights) == 2 * count


def test_a_file_says_what_the_adapter_is(tmp_path):
    model = classifier()
    model.enable_lora(2, lora_alpha=3, targets=["query"])
    model.save_adapter(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        record = json.loads(str(file["adapter"]))
        assert file[f"{QUERY}/a"].shape == (8, 2) and len(file.files) == 1 + 2 * 2
    assert (record["rank"], record["alpha"], record["targets"]) == (2, 3, ["query"])
    assert record["shapes"]["embedding"] == [11, 8] and len(record["shapes"]) == 14


def test_an_adapter_of_another_base_is_refused_with_all_differences(tmp_path):
    model, _ = with_adapters("law", targets=["query"])
    model.save_adapter(tmp_path / "law.npz")
    config = kt.TransformerConfig(vocab_size=11, **{**SIZES, "num_layers": 1, "d_ff": 17})
    other = kt.SentenceClassifier(config, 5)
    before = [weight.path for weight in other.trainable_weights]
    with pytest.raises(ValueError, match="for a layer with these parts.*layer=sentence_classifier") as error:
        other.load_adapter(tmp_path / "law.npz")
    message = str(error.value)
    assert "- head: (8, 3) in the file, (8, 5) here" in message
    assert "- encoder/layer_0/feed_forward/feed_forward/inner: (8, 13) in the file, (8, 17) here" in message
    assert "- encoder/layer_1/self_attention/attention/query: (8, 8) in the file, nothing here" in message
    assert len(message.splitlines()) == 1 + 1 + 2 + 6 and QUERY not in message
    assert [weight.path for weight in other.trainable_weights] == before
    other.set_adapter(None)
    with pytest.raises(ValueError, match=r"name='default', adapters=\[\]"):
        other.set_adapter("default")


def test_matrices_of_other_shapes_are_refused(tmp_path):
    model, _ = with_adapters("law", targets=["query"])
    model.save_adapter(tmp_path / "law.npz")
    with np.load(tmp_path / "law.npz") as file:
        arrays = {**file}
    np.savez(tmp_path / "bad.npz", **{**arrays, f"{QUERY}/a": np.zeros((8, 3)), "x/a": [0.0], "x/b": [0.0]})
    with pytest.raises(ValueError) as error:
        classifier().load_adapter(tmp_path / "bad.npz")
    assert re.search(rf"- {QUERY}: matrices of the shapes \(8, 3\) and \(2, 8\)\n- x: ", str(error.value))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.set_adapter("news"), r"`name`.*Received: name='news', adapters=\['law'\]"),
        (lambda model: model.save_adapter("x.npz", "news"), "`name`.*Received: name='news'"),
        (lambda model: model.enable_lora(2, name="law"), r"`name`.*new.*Received: name='law', adapters=\['law'\]"),
        (lambda model: model.load_adapter("x.npz", "law"), "`name`.*new.*Received: name='law'"),
        (lambda model: model.enable_lora(2, name=None), "`name`.*new.*Received: name=None"),
        (lambda model: model.enable_lora(0, name="news"), "`rank`.*Received: rank=0"),
        (lambda model: model.enable_lora(1.5, name="news"), "`rank`.*Received: rank=1.5"),
        (lambda model: model.enable_lora(2, targets=["query", "qu"], name="news"), r"`targets`.*match: \['qu'\]"),
        (lambda model: model.enable_lora(2, targets="query", name="news"), "`targets`.*list.*targets='query'"),
        (lambda model: model.enable_lora(2, targets=[], name="news"), r"`targets`.*list.*targets=\[\]"),
        (lambda model: model.load_adapter("absent.npz", "news"), "`path`.*absent.npz .no such file"),
        (lambda model: model.encoder.enable_lora(2), "not to both.*Received: layer=encoder"),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(call, message, law):
    model, outputs = law
    model.set_adapter("law")
    with pytest.raises(ValueError, match=message):
        call(model)
    np.testing.assert_array_equal(values(model(IDS)), outputs["law"])
    model.set_adapter(None)
    np.testing.assert_array_equal(values(model(IDS)), outputs[None])


def test_without_an_active_adapter_there_is_nothing_to_save_or_merge(tmp_path):
    model, _ = with_adapters("law")
    model.set_adapter(None)
    for call in (model.merge_lora, lambda: model.save_adapter(tmp_path / "x.npz")):
        with pytest.raises(ValueError, match=r"must be active. Received: name=None, adapters=\['law'\]"):
            call()
    model.save_adapter(tmp_path / "law.npz", "law")
    assert [path.name for path in tmp_path.iterdir()] == ["law.npz"]


def test_a_model_with_an_adapter_in_one_layer_gets_none_of_its_own():
    model = classifier()
    model.encoder.enable_lora(2)
    with pytest.raises(ValueError, match="not to both.*layer=sentence_classifier.*query"):
        model.enable_lora(2, targets=["head"])


def test_a_constraint_is_refused_before_anything_changes():
    sublayer = keras.layers.Dense(8, kernel_constraint="non_neg", name="inner")
    layer = layers.ResidualConnection(sublayer)
    layer.build((None, None, 8))
    with pytest.raises(ValueError, match=r"constraint.*Received: constraints of \['inner'\]"):
        layer.enable_lora(2)
    assert len(layer.trainable_weights) == 4


@pytest.mark.parametrize("content", [b"no archive", b"PK\x05\x06" + bytes(18)])
def test_other_files_are_refused(content, tmp_path):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(ValueError, match="`path` must be a file of `save_adapter`. Received: path="):
        classifier().load_adapter(tmp_path / "x.npz")


def test_damaged_and_newer_files_and_pickles_are_refused(tmp_path):
    model, _ = with_adapters("law")
    model.save_adapter(tmp_path / "law.npz")
    content = bytearray((tmp_path / "law.npz").read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "damaged.npz").write_bytes(content)
    np.savez(tmp_path / "newer.npz", adapter=np.array('{"format": 2}'))
    np.savez(tmp_path / "pickle.npz", adapter=np.array([{"format": 1}], dtype=object))
    for name, reason in (("damaged", "CRC"), ("newer", "the newer format 2"), ("pickle", "allow_pickle")):
        with pytest.raises(ValueError, match=f"`path`.*{name}.npz.*{reason}"):
            classifier().load_adapter(tmp_path / f"{name}.npz")


@keras.saving.register_keras_serializable(package="test_adapters")
class Unnamed(keras.layers.Layer):
    """A feed-forward layer whose parts have the names that Keras makes up."""

    def build(self, input_shape):
        self.first, self.second = keras.layers.Dense(5), keras.layers.Dense(8)
        self.first.build(input_shape)
        self.second.build((*input_shape[:-1], 5))

    def call(self, x):
        return self.second(self.first(x))


def test_parts_without_names_are_found_again(tmp_path):
    block = layers.EncoderLayer(8, 2, feed_forward=Unnamed())
    model, other = (classifier(layer=block) for _ in range(2))
    other.set_weights(model.get_weights())
    model.enable_lora(2, targets=["dense_1"])
    assert len(model.trainable_weights) == 2 * 2
    fill(model, 1)
    model.save_adapter(tmp_path / "a.npz")
    other.load_adapter(tmp_path / "a.npz")
    np.testing.assert_array_equal(values(other(IDS)), values(model(IDS)))


def test_an_adapter_of_a_layer_fits_the_layer_of_a_loaded_model(tmp_path):
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, layers.Encoder(**SIZES, name="mine")(inputs))
    x = np.random.default_rng(1).normal(size=(2, 5, 8)).astype("float32")
    model.save(tmp_path / "model.keras")
    encoder = model.get_layer("mine")
    encoder.enable_lora(2, targets=["value"])
    fill(encoder, 1)
    encoder.save_adapter(tmp_path / "a.npz")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    loaded.get_layer("mine").load_adapter(tmp_path / "a.npz")
    np.testing.assert_array_equal(values(loaded(x)), values(model(x)))
    other = layers.Encoder(**SIZES)
    other.build((None, None, 8))
    other.load_adapter(tmp_path / "a.npz")
