import dataclasses
import json

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from keras_transformer import LanguageModel, MaskedLanguageModel, SentenceClassifier, Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.export import export_model
from keras_transformer.export.verify.equality import VerificationError, compare_logits

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
    assert [entry["equal"] for entry in entries.values()] == [224, 224]


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
        None,
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
    assert {name: agreement.passed for name, agreement in found.items()} == {"saved_model": True, "onnx": True}
    tokens, scores, _ = model.generate(IDS, strategy)
    for found in run_both(tmp_path / "export", "prompt"):
        unused = found["tokens"].shape[2] - tokens.shape[2]  # `generate` removes trailing columns of padding.
        np.testing.assert_array_equal(found["tokens"], np.pad(tokens, ((0, 0), (0, 0), (0, unused))))
        np.testing.assert_allclose(found["scores"], scores, atol=1e-3)
    entries = json.loads((tmp_path / "export" / "verification.json").read_text())
    assert [entry["equal"] + entry["ties"] for entry in entries.values()] == [224, 224]
    search = (strategy or GreedySearch()).options
    assert [entry["search"] for entry in entries.values()] == [search, search]
    assert metadata(tmp_path / "export") == {"config": dataclasses.asdict(CONFIG), "search": search}


@pytest.mark.slow
def test_a_program_that_disagrees_is_not_left_behind(tmp_path, randomize, monkeypatch):
    model = randomize(SentenceClassifier(CONFIG, 5), scale=0.3)
    right = model.predict_on_batch
    monkeypatch.setattr(model, "predict_on_batch", lambda source: 1.1 * right(source))
    with pytest.raises(VerificationError, match="saved_model export"):
        export_model(model, tmp_path / "export")
    assert not any(tmp_path.iterdir())


def test_the_logits_of_every_position_are_compared():
    logits = np.array([[[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]], [[0.0, 0.0, 4.0], [5.0, 0.0, 0.0]]], "float32")
    other = logits.copy()
    other[1, 0] = [9.0, 0.0, 4.0]

    class Model:
        def predict_on_batch(self, tokens):
            return logits

    found = compare_logits(Model(), lambda tokens: other, [np.zeros((2, 2), "int32")])
    assert (found.sentences, found.equal, found.ties, found.largest_score_difference) == (4, 3, 0, 9.0)
    assert not found.passed


def test_classes_are_equal_if_the_logits_almost_tie():
    logits = np.array([[1.0, 2.0, 0.0], [3.0, 2.9995, 0.0]], "float32")
    other = np.array([[1.0, 2.0, 0.0], [2.9995, 3.0, 0.0]], "float32")

    class Model:
        def predict_on_batch(self, source):
            return logits

    found = compare_logits(Model(), lambda source: other, [np.zeros((2, 3), "int32")])
    assert (found.sentences, found.equal, found.ties) == (2, 1, 1)
    assert found.largest_score_difference == pytest.approx(5e-4, rel=0.01)
    assert compare_logits(Model(), lambda source: logits, [np.zeros((2, 3), "int32")]).passed
    assert not compare_logits(Model(), lambda source: logits + 0.01, [np.zeros((2, 3), "int32")]).passed
    assert not compare_logits(Model(), lambda source: logits * np.nan, [np.zeros((2, 3), "int32")]).passed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Transformer(CONFIG), "`model` .*Received: Transformer"),
        (
            lambda: LanguageModel(
                TransformerConfig(vocab_size=29, d_model=12, num_heads=3, d_ff=17, pad_id=1, bos_id=0)
            ),
            "Received: pad_id=1, bos_id=0, eos_id=3",
        ),
    ],
)
def test_another_model_is_refused(tmp_path, make, message):
    with pytest.raises(ValueError, match=message):
        export_model(make(), tmp_path / "export")


@pytest.mark.parametrize(
    ("make", "strategy", "message"),
    [
        (lambda: LanguageModel(CONFIG), Sampling(), "`strategy` .*BeamSearch.*Received: strategy=Sampling"),
        (lambda: MaskedLanguageModel(CONFIG), GreedySearch(), "`strategy` requires a LanguageModel"),
        (
            lambda: SentenceClassifier(CONFIG, 5),
            GreedySearch(),
            "`strategy` .*LanguageModel.*Received: strategy=GreedySearch",
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
