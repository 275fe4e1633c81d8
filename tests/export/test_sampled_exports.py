"""Programs with noise or a prefix as an input, and the step graph of language models."""

import dataclasses

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from keras_transformer import LanguageModel, Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.export import export_model
from keras_transformer.export.onnx.text_decoder import OnnxTextDecoder
from keras_transformer.export.verify.keras_search import KerasSearch, PromptSearch
from keras_transformer.export.verify.samples import compare_samples

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
CONFIG = TransformerConfig(vocab_size=29, num_layers=1, d_model=12, num_heads=3, d_ff=17)
SOURCE = np.array([[5, 6, 7, 3], [9, 3, 0, 0], [10, 11, 3, 0]], "int32")
PREFIX = np.array([[5, 6], [7, 0], [0, 0]], "int32")
PROMPT = np.array([[5, 6, 7, 8], [9, 0, 0, 0], [10, 11, 0, 0]], "int32")
SAMPLING = Sampling(top_k=11, top_p=0.9, temperature=0.8, n_samples=2, extra_length=5, min_length=2)


@pytest.fixture(scope="module")
def transformer(randomize):
    return randomize(Transformer(CONFIG), scale=0.3)


@pytest.fixture(scope="module")
def language_model(randomize):
    return randomize(LanguageModel(CONFIG), scale=0.3)


def run_onnx(path, **inputs):
    session = onnxruntime.InferenceSession(path / "onnx" / "model.onnx")
    return session.run(["tokens", "scores"], inputs)


def expect_equal(found, expected):
    """Compares tokens and scores. Exports do not remove trailing columns of padding."""
    tokens, scores = found
    unused = tokens.shape[2] - expected.tokens.shape[2]
    np.testing.assert_array_equal(tokens, np.pad(expected.tokens, ((0, 0), (0, 0), (0, unused))))
    np.testing.assert_allclose(scores, expected.scores, atol=1e-3)


@pytest.mark.slow
def test_exported_samples_are_those_of_the_seed(tmp_path, transformer):
    agreement = export_model(transformer, tmp_path / "export", SAMPLING)
    assert [(found.samples, found.equal) for found in agreement.values()] == [(448, 448)] * 2
    for seed in (1, 2):
        strategy = dataclasses.replace(SAMPLING, seed=seed)
        expected, noise = transformer.generate(SOURCE, strategy), strategy.noise(3, 4 + 5)
        expect_equal(run_onnx(tmp_path / "export", source=SOURCE, noise=noise), expected)
        serve = tf.saved_model.load(str(tmp_path / "export" / "saved_model")).signatures["serving_default"]
        found = serve(source=tf.constant(SOURCE), noise=tf.constant(noise))
        expect_equal((found["tokens"].numpy(), found["scores"].numpy()), expected)


@pytest.mark.nightly
def test_an_exported_search_continues_a_prefix(tmp_path, transformer):
    strategy = BeamSearch(beam_size=3, n_best=2, extra_length=5)
    export_model(transformer, tmp_path / "export", strategy, ["onnx"], prefix=True)
    expected = transformer.generate(SOURCE, strategy, PREFIX)
    assert (expected.tokens[0, :, :2] == PREFIX[0]).all()
    expect_equal(run_onnx(tmp_path / "export", source=SOURCE, prefix=PREFIX), expected)
    empty = np.zeros((3, 1), "int32")
    expect_equal(run_onnx(tmp_path / "export", source=SOURCE, prefix=empty), transformer.generate(SOURCE, strategy))


def test_a_source_with_the_name_of_another_input_is_refused(tmp_path):
    noise, other = keras.Input((5, 12), name="noise"), keras.Input((5, 12), name="other")
    source = keras.Model({"noise": noise, "other": other}, noise + other)
    with pytest.raises(ValueError, match="`noise` must not be the name of a source"):
        export_model(Transformer(CONFIG, source=source), tmp_path / "export", SAMPLING, ["onnx"])
    assert not any(tmp_path.iterdir())


@pytest.mark.nightly
def test_samples_of_a_prefix_in_int8_are_accepted(tmp_path, transformer):
    found = export_model(transformer, tmp_path / "export", SAMPLING, ["onnx_int8", "onnx_float16"], prefix=True)
    assert found["onnx_int8"].equal > 224 and found["onnx_float16"].equal > 403  # Of 448.


@pytest.mark.nightly
def test_exported_samples_have_the_distribution_of_the_model(tmp_path, language_model):
    """Pearson's chi-square test of 50,000 first tokens."""
    from scipy.stats import chisquare

    strategy = dataclasses.replace(SAMPLING, n_samples=500, min_length=0, extra_length=2)
    export_model(language_model, tmp_path / "export", strategy, ["onnx"])
    prompts = np.array([[5, 6, 7]] * 20, "int32")
    counts = np.zeros(29)
    for seed in range(5):
        noise = dataclasses.replace(strategy, seed=seed).noise(20, 8)
        session = onnxruntime.InferenceSession(tmp_path / "export" / "onnx" / "model.onnx")
        tokens = session.run(["tokens"], {"prompt": prompts, "noise": noise})[0]
        counts += np.bincount(tokens[:, :, 3].ravel(), minlength=29)
    logits = language_model.predict_on_batch(np.array([[2, 5, 6, 7]]))[0, -1].astype("float64")
    logits[[0, 2]] = -np.inf
    order = np.argsort(-logits)[: strategy.top_k]
    weights = np.exp(logits[order] / strategy.temperature)
    weights /= weights.sum()
    kept = order[: np.searchsorted(np.cumsum(weights), strategy.top_p) + 1]
    expected = np.exp(logits[kept] / strategy.temperature)
    assert counts.sum() == 50_000 == counts[kept].sum() and len(kept) > 4
    assert chisquare(counts[kept], 50_000 * expected / expected.sum()).pvalue > 0.01


def samples_of(model, strategy):
    """A program that samples with the Keras model."""

    class Program:
        def search(self, source):
            return model.generate(source, strategy)[:2]

    return Program()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, (True, True)),
        ({"seed": 1}, (False, False)),
        pytest.param({"temperature": 0.4}, (False, False), marks=pytest.mark.nightly),
        pytest.param({"top_p": 1.0}, (False, False), marks=pytest.mark.nightly),
        pytest.param({"min_length": 0, "extra_length": 4}, (False, False), marks=pytest.mark.nightly),
        ({"temperature": 0.79}, (False, True)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["transformer", pytest.param("language model", marks=pytest.mark.nightly)])
def test_other_samples_are_noticed(transformer, language_model, changes, passes, kind):
    model, rows = (transformer, SOURCE) if kind == "transformer" else (language_model, PROMPT)
    source = np.tile(rows, (20, 1))
    search = (KerasSearch if kind == "transformer" else PromptSearch)(model, SAMPLING)
    program = samples_of(model, dataclasses.replace(SAMPLING, **{"seed": 0, **changes}))
    found = [compare_samples(search, program, [source, source[:1]], approximate) for approximate in (False, True)]
    assert tuple(agreement.passed for agreement in found) == passes, found
    assert (found[0].equal == found[0].samples == 122) == (not changes)


@pytest.mark.nightly
def test_a_loop_over_the_step_graph_is_greedy_search(tmp_path, randomize):
    fields = {"num_heads": 2, "d_model": 12, "num_kv_heads": 1, "positions": "learned", "max_length": 9}
    model = randomize(LanguageModel(dataclasses.replace(CONFIG, **fields)), scale=0.3)
    found = export_model(model, tmp_path / "export", BeamSearch(extra_length=4), ["onnx"])
    assert found["onnx decoder"].equal == 224
    decoder = OnnxTextDecoder(tmp_path / "export" / "onnx", extra_length=4)
    expected = model.generate(PROMPT, GreedySearch(extra_length=4))
    tokens, scores = decoder.search(PROMPT)
    np.testing.assert_array_equal(tokens, expected.tokens)
    log_probs = model.token_log_probs(expected.tokens[:, 0])
    np.testing.assert_allclose(scores[:, 0], log_probs[:, 1:].sum(axis=1), atol=1e-4)
    empty = decoder.search(np.zeros((1, 0), "int32"))[0]
    np.testing.assert_array_equal(empty, model.generate([[0]], GreedySearch(extra_length=4)).tokens)
    inputs = onnxruntime.InferenceSession(tmp_path / "export" / "onnx" / "decoder.onnx").get_inputs()
    assert [(value.name, value.shape) for value in inputs] == [
        ("tokens", ["rows", "length"]),
        ("cache_key_0", ["rows", 1, "time", 6]),
        ("cache_value_0", ["rows", 1, "time", 6]),
    ]
