import dataclasses
import json

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer import LanguageModel, MaskedLanguageModel, SentenceClassifier, Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.export import export_model
from keras_transformer.export.verify.equality import VerificationError
from keras_transformer.export.verify.outputs import compare_outputs

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
CONFIG = TransformerConfig(vocab_size=29, num_encoder_layers=1, num_decoder_layers=2, d_model=12, num_heads=3, d_ff=17)
IDS = np.array([[5, 6, 7, 8], [9, 0, 0, 0], [10, 11, 0, 0]], "int32")


def run_both(path, name):
    """The outputs of both programs, by name."""
    serve = tf.saved_model.load(str(path / "saved_model")).signatures["serving_default"]
    session = onnxruntime.InferenceSession(path / "onnx" / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    yield {output: value.numpy() for output, value in serve(**{name: tf.constant(IDS)}).items()}
    yield dict(zip(names, session.run(names, {name: IDS}), strict=True))


def metadata(path):
    found = onnxruntime.InferenceSession(path / "onnx" / "model.onnx").get_modelmeta().custom_metadata_map
    return {name: json.loads(value) for name, value in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pooling", "activation", "dtype"),
    [
        pytest.param("mean", "relu", "float32", marks=pytest.mark.nightly),
        pytest.param("first", "gelu", "float32", marks=pytest.mark.nightly),
        ("first", "silu", "mixed_float16"),
    ],
)
def test_a_classifier_is_exported(tmp_path, randomize, pooling, activation, dtype):
    config = dataclasses.replace(CONFIG, activation=activation)
    model = randomize(SentenceClassifier(config, 5, pooling, dtype=dtype), scale=0.3)
    export_model(model, tmp_path / "export")
    if dtype != "float32":
        weights, model = model.get_weights(), SentenceClassifier(config, 5, pooling)
        model.set_weights(weights)
    assert metadata(tmp_path / "export") == {
        "config": dataclasses.asdict(config),
        "num_classes": 5,
        "pooling": pooling,
    }
    for found in run_both(tmp_path / "export", "source"):
        np.testing.assert_allclose(found["logits"], model.predict_on_batch(IDS), atol=1e-4)
    entries = json.loads((tmp_path / "export" / "verification.json").read_text())
    assert [entry["inputs"] for entry in entries.values()] == [21, 21]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({}, "mixed_float16"),
        pytest.param({"share_embeddings": False, "positions": "rotary"}, "float32", marks=pytest.mark.nightly),
    ],
)
def test_a_masked_language_model_is_exported(tmp_path, randomize, fields, dtype):
    config = dataclasses.replace(CONFIG, **fields)
    model = randomize(MaskedLanguageModel(config, dtype=dtype), scale=0.3)
    found = export_model(model, tmp_path / "export")
    assert {name: agreement.passed for name, agreement in found.items()} == {"saved_model": True, "onnx": True}
    weights, model = model.get_weights(), MaskedLanguageModel(config)
    model.set_weights(weights)
    assert metadata(tmp_path / "export") == {"config": dataclasses.asdict(config)}
    expected = model.predict_on_batch(IDS)
    assert expected.shape == (3, 4, 29)
    for found in run_both(tmp_path / "export", "tokens"):
        np.testing.assert_allclose(found["logits"], expected, atol=1e-4 * np.abs(expected).max())


def without_multiples_of_three(logits, tokens, step):
    """Forbids tokens, and makes others likelier with each step."""
    is_forbidden = (np.arange(29) % 3 == 0) & (np.arange(29) > 3)
    biased = logits + 0.1 * keras.ops.cast(step, "float32") * (np.arange(29) == 7)
    return keras.ops.where(is_forbidden, -np.inf, biased)


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(None, marks=pytest.mark.nightly),
        BeamSearch(beam_size=3, n_best=2, extra_length=5),
        pytest.param(
            BeamSearch(
                beam_size=3,
                n_best=2,
                extra_length=5,
                repetition_penalty=1.4,
                logits_processor=without_multiples_of_three,
            ),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["greedy", "beam", "processed"],
)
def test_a_language_model_is_exported(tmp_path, randomize, strategy):
    model = randomize(LanguageModel(CONFIG), scale=0.3)
    found = export_model(model, tmp_path / "export", strategy)
    titles = ["saved_model", "onnx", "onnx decoder"]
    assert {name: agreement.passed for name, agreement in found.items()} == dict.fromkeys(titles, True)
    tokens, scores, _ = model.generate(IDS, strategy)
    for found in run_both(tmp_path / "export", "prompt"):
        unused = found["tokens"].shape[2] - tokens.shape[2]  # `generate` removes trailing columns of padding.
        np.testing.assert_array_equal(found["tokens"], np.pad(tokens, ((0, 0), (0, 0), (0, unused))))
        np.testing.assert_allclose(found["scores"], scores, atol=1e-3)
    entries = json.loads((tmp_path / "export" / "verification.json").read_text())
    assert [entry["equal"] + entry["ties"] for entry in entries.values()] == [224, 224, 224]
    search = (strategy or GreedySearch()).options
    greedy = GreedySearch(extra_length=search["extra_length"]).options
    assert [entry["search"] for entry in entries.values()] == [search, search, greedy]
    assert metadata(tmp_path / "export") == {"config": dataclasses.asdict(CONFIG), "search": search}


@pytest.mark.slow
def test_a_program_that_disagrees_is_not_left_behind(tmp_path, randomize, monkeypatch):
    model = randomize(SentenceClassifier(CONFIG, 5), scale=0.3)
    right = model.predict_on_batch
    monkeypatch.setattr(model, "predict_on_batch", lambda source: 1.1 * right(source))
    with pytest.raises(VerificationError, match="saved_model export"):
        export_model(model, tmp_path / "export")
    assert not any(tmp_path.iterdir())


def test_outputs_are_compared_relative_to_the_largest():
    right = np.array([[1.0, 2.0, 0.0], [3.0, 1.0, -100.0]], "float32")

    class Program:
        def __init__(self, outputs):
            self.outputs = outputs

        def run(self, inputs):
            return self.outputs

    def compared(found, **options):
        return compare_outputs(Program([right, right]), Program([right, found]), [None, None], **options)

    near, off = right + np.float32(0.009), right + np.float32(0.011)
    assert compared(near).passed and not compared(off).passed
    assert compared(off).difference == pytest.approx(1.1e-4, rel=1e-2)
    assert not compared(right * np.nan).passed and not compared(right * np.nan, is_approximate=True).passed
    assert compared(off, is_approximate=True).passed
    assert not compared(-right, is_approximate=True).passed
    assert compared(-right, is_approximate=True, metric=lambda ours, theirs: 1.0).passed
    assert not compared(right, is_approximate=True, metric=lambda ours, theirs: 0.9).passed


@pytest.mark.parametrize(
    ("make", "strategy", "message"),
    [
        (lambda: LanguageModel(CONFIG), "greedy", "`strategy` .*BeamSearch.*Received: strategy='greedy'"),
        (lambda: LanguageModel(CONFIG), Sampling(seed=1), "`seed` must not be given.*Received: strategy=Sampling"),
        (lambda: MaskedLanguageModel(CONFIG), GreedySearch(), "`strategy` requires a model that generates tokens"),
        (
            lambda: SentenceClassifier(CONFIG, 5),
            GreedySearch(),
            "`strategy` .*Received: strategy=GreedySearch",
        ),
    ],
)
def test_another_strategy_is_refused(tmp_path, make, strategy, message):
    with pytest.raises(ValueError, match=message):
        export_model(make(), tmp_path / "export", strategy)
    assert not any(tmp_path.iterdir())


def test_another_backend_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    message = "tensorflow .*Received: KERAS_BACKEND=jax"
    with pytest.raises(ValueError, match=message):
        export_model(None, tmp_path / "export")
    assert not any(tmp_path.iterdir())


def test_nothing_is_replaced(tmp_path):
    with pytest.raises(ValueError, match=f"`path` .*Received: path={tmp_path}"):
        export_model(SentenceClassifier(CONFIG, 5), tmp_path)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (lambda: keras.Sequential([keras.layers.Dense(3)]), {}, "`model` must be .*Received: Sequential"),
        (lambda: 3, {}, "`model` must be .*Received: int"),
        (lambda: SentenceClassifier(CONFIG, 5), {"formats": ["onnx", "web"]}, "`formats` must be .*'web'"),
        (lambda: SentenceClassifier(CONFIG, 5), {"formats": []}, r"`formats` must be .*Received: formats=\[\]"),
        (lambda: SentenceClassifier(CONFIG, 5), {"sample_inputs": []}, "`sample_inputs` must contain an input"),
        (lambda: SentenceClassifier(CONFIG, 5), {"sample_inputs": np.ones(3)}, "`sample_inputs` must be int32 of"),
        (lambda: LanguageModel(CONFIG), {"metric": min}, "`metric` requires a model without a search"),
        (lambda: LanguageModel(CONFIG), {"prefix": [[5]]}, r"`prefix` must be a bool.*Received: prefix=\[\[5\]\]"),
        (lambda: LanguageModel(CONFIG), {"prefix": True}, "`prefix` requires .*Received: LanguageModel"),
        (lambda: SentenceClassifier(CONFIG, 5), {"prefix": True}, "`prefix` requires .*Received: SentenceClassifier"),
        (
            lambda: keras.Sequential([keras.Input((5,), dtype="int32"), keras.layers.Embedding(7, 3)]),
            {},
            "`sample_inputs` must be given .*Received: the input .* of dtype int32",
        ),
    ],
    ids=[
        *(
            "no inputs",
            "no model",
            "format",
            "no format",
            "no samples",
            "sample",
            "metric",
            "ids",
            "prefix",
            "no search",
        ),
        "samples",
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, model, options, message):
    with pytest.raises(ValueError, match=message):
        export_model(model(), tmp_path / "export", **options)
    assert not any(tmp_path.iterdir())


STRATEGY = BeamSearch(beam_size=3, n_best=2, extra_length=5)
SIZES = {"vocab_size": 29, "num_layers": 1, "d_model": 12, "num_heads": 3, "d_ff": 17}


def with_ids(pad_id, bos_id, eos_id):
    return Transformer(TransformerConfig(**SIZES, pad_id=pad_id, bos_id=bos_id, eos_id=eos_id))


def of_images():
    source = keras.Sequential([keras.Input((14, 7, 3)), kt.layers.PatchEmbedding(7, 12)])
    return Transformer(TransformerConfig(**SIZES), source=source)


def of_features():
    source = keras.Sequential([keras.Input((None, 11)), keras.layers.Masking(), keras.layers.Dense(12)])
    return SentenceClassifier(TransformerConfig(**SIZES), 5, source=source)


def ensemble():
    return kt.Ensemble([Transformer(TransformerConfig(**SIZES, positions=name)) for name in ("sinusoidal", "rotary")])


def of_foreign_layers():
    frames, image = keras.Input((None, 11), name="frames"), keras.Input((14, 14, 3), name="image")
    convolved = keras.layers.Conv2D(5, 3, strides=2, activation="gelu")(image)
    encoded = kt.layers.Encoder(num_layers=1, d_model=8, num_heads=2, d_ff=16)(keras.layers.Dense(8)(frames))
    parts = [
        keras.layers.LSTM(7)(frames),
        keras.layers.Flatten()(keras.layers.BatchNormalization()(convolved)),
        kt.layers.SequencePooling("mean")(encoded),
    ]
    joined = keras.layers.Concatenate()(parts)
    outputs = {"classes": keras.layers.Dense(3, activation="softmax")(joined), "size": keras.layers.Dense(1)(joined)}
    return keras.Model({"frames": frames, "image": image}, outputs)


def with_lora():
    model = LanguageModel(TransformerConfig(**SIZES), dtype="mixed_bfloat16")
    model.enable_lora(2, b_initializer="he_normal")
    return model


MODELS = {
    "LoRA": (with_lora, STRATEGY),
    "ids 0, 1, 2": (lambda: with_ids(0, 1, 2), STRATEGY),
    "ids 0, 0, 1": (lambda: with_ids(0, 0, 1), STRATEGY),
    "images": (of_images, STRATEGY),
    "features": (of_features, None),
    "ensemble": (ensemble, STRATEGY),
    "modern": (lambda: LanguageModel(TransformerConfig.preset("modern", **{**SIZES, "num_kv_heads": 1})), STRATEGY),
    "foreign": (of_foreign_layers, None),
}

FORMATS_OF = {"ids 0, 0, 1": ["onnx"], "foreign": ["saved_model", "onnx", "onnx_float16"]}


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_any_model_is_exported_in_every_format(name, tmp_path, randomize):
    make, strategy = MODELS[name]
    model = make()
    for part in getattr(model, "models", [model]):
        randomize(part, scale=0.3)
    formats = FORMATS_OF.get(name, ["saved_model", "onnx", "onnx_int8", "onnx_float16"])
    found = export_model(model, tmp_path / "export", strategy, formats)
    titles = [*formats]
    if isinstance(model, LanguageModel):
        titles += [f"{name} decoder" for name in formats if name.startswith("onnx")]
    assert {title: agreement.passed for title, agreement in found.items()} == dict.fromkeys(titles, True)
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == sorted([*formats, "verification.json"])


@pytest.mark.nightly
def test_a_sequential_model_is_exported(tmp_path):
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(5, name="size")])
    found = export_model(model, tmp_path / "export", formats=["saved_model", "onnx"])
    assert {name: agreement.passed for name, agreement in found.items()} == {"saved_model": True, "onnx": True}


@pytest.mark.slow
def test_inputs_and_outputs_have_the_names_of_the_model(tmp_path, randomize):
    model = randomize(of_foreign_layers(), scale=0.3)
    samples = {"frames": np.ones((2, 5, 11)), "image": np.ones((2, 14, 14, 3))}
    export_model(model, tmp_path / "export", formats=["onnx"], sample_inputs=samples)
    session = onnxruntime.InferenceSession(tmp_path / "export" / "onnx" / "model.onnx")
    described = [(value.name, value.shape) for value in (*session.get_inputs(), *session.get_outputs())]
    assert described == [
        ("frames", ["batch", "frames_length", 11]),
        ("image", ["batch", 14, 14, 3]),
        ("classes", ["batch", 3]),
        ("size", ["batch", 1]),
    ]
