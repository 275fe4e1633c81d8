"""Every search option has the same effect in exported graphs as in Keras."""

import json

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, Shortlist
from keras_transformer.export.config import ExportConfig
from keras_transformer.export.format import Exported
from keras_transformer.export.onnx.export import make_graph
from keras_transformer.export.saved_model.export import write_saved_model
from keras_transformer.export.verify.equality import random_source_batches
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
STRATEGIES = {
    "beam": BeamSearch(beam_size=3, n_best=3, extra_length=4, min_length=4, no_repeat_ngram_size=2, token_scores=True),
    "penalty": BeamSearch(beam_size=3, n_best=3, extra_length=4, repetition_penalty=1.7, token_scores=True),
    "greedy": BeamSearch(beam_size=1, extra_length=4, token_scores=True, no_repeat_ngram_size=1),
}


#: Three candidates for each source token, and 128 that are always considered.
SHORTLIST = Shortlist(np.random.default_rng(3).integers(128, 270, (270, 3)), np.arange(128), vocab_size=270)


@pytest.fixture(scope="module")
def model():
    """A model with random weights."""
    keras.utils.set_random_seed(5)
    model = Transformer(TransformerConfig(vocab_size=270, num_layers=1, d_model=8, num_heads=2, d_ff=12))
    rng = np.random.default_rng(5)
    model.set_weights([weight + rng.normal(scale=0.4, size=weight.shape) for weight in model.get_weights()])
    return model


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = ModelDirectory(tmp_path_factory.mktemp("model"))
    directory.write_tokenizers((train_sentencepiece(["one two three"], TokenizerConfig(vocab_size=270)),))
    return directory


def saved_model(path):
    loaded = tf.saved_model.load(str(path))

    def run(source):
        result = loaded.signatures["tokens"](source=tf.constant(source))
        return {name: value.numpy() for name, value in result.items()}

    return run, json.loads(loaded.search_options().numpy())


def write_onnx(exported, path):
    """Writes the graph of the search alone."""
    onnx.save(make_graph("model", exported), path)


def onnx_model(path):
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    metadata = session.get_modelmeta().custom_metadata_map
    return lambda source: dict(zip(names, session.run(names, {"source": source}), strict=True)), json.loads(
        metadata["search"]
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("write", "load"),
    [(write_saved_model, saved_model), (write_onnx, onnx_model)],
)
@pytest.mark.parametrize(
    ("strategy", "shortlist"),
    [
        pytest.param(STRATEGIES["beam"], None, id="beam"),
        pytest.param(STRATEGIES["greedy"], SHORTLIST, id="greedy, shortlist"),
        pytest.param(STRATEGIES["penalty"], SHORTLIST, id="penalty, shortlist"),
    ],
)
def test_an_export_finds_what_keras_finds(model, directory, tmp_path, strategy, shortlist, write, load):
    tokenizer = Tokenizer(directory.tokenizer_files[0])
    write(Exported(model, directory, (tokenizer, tokenizer), strategy, shortlist), tmp_path / "export")
    search = {"shortlist": shortlist, "text_constraints": tokenizer.text_constraints}
    program, options = load(tmp_path / "export")
    assert BeamSearch(**options) == strategy
    for source in random_source_batches(270, longest=9, seed=1)[7:10]:
        expected, found = model.generate(source, strategy, **search), program(source)
        assert set(found) == set(expected._fields)
        length = expected.tokens.shape[2]
        np.testing.assert_array_equal(found["tokens"][:, :, :length], expected.tokens)
        assert not found["tokens"][:, :, length:].any()
        np.testing.assert_allclose(found["scores"], expected.scores, atol=1e-4)
        np.testing.assert_allclose(found["token_scores"][:, :, :length], expected.token_scores, atol=1e-4)


def test_the_options_are_the_export_configurations():
    options = {"min_length": 3, "no_repeat_ngram_size": 4, "repetition_penalty": 1.5, "token_scores": True}
    assert ExportConfig(beam_size=2, **options).strategy == BeamSearch(beam_size=2, n_best=2, **options)


MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "gated", "activation": "silu", "num_kv_heads": 2}
VARIANTS = {
    "modern": MODERN,
    "relative, soft cap": {"positions": "relative", "soft_cap": 3.0, "logits_scale": 0.5},
    "alibi, window, norms": {"positions": "alibi", "window": 3, "qk_norm": True, "embedding_norm": True},
    "one head of keys": {"num_kv_heads": 1, "use_bias": False, "positions": "none"},
}


@pytest.mark.parametrize(
    ("variant", "write", "load"),
    [
        (variant, write, load)
        for variant in VARIANTS
        for write, load in ((write_saved_model, saved_model), (write_onnx, onnx_model))
    ],
)
@pytest.mark.nightly
def test_an_export_of_other_parts_finds_what_keras_finds(variant, write, load, directory, tmp_path, randomize):
    strategy = STRATEGIES["penalty" if variant == "modern" else "beam"]
    sizes = {"vocab_size": 270, "num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 12}
    model = randomize(Transformer(TransformerConfig(**sizes, **VARIANTS[variant])), scale=0.4)
    tokenizer = Tokenizer(directory.tokenizer_files[0])
    write(Exported(model, directory, (tokenizer, tokenizer), strategy, None), tmp_path / "export")
    program, _ = load(tmp_path / "export")
    for source in random_source_batches(270, longest=9, seed=1)[7:10]:
        expected = model.generate(source, strategy, text_constraints=tokenizer.text_constraints)
        found, length = program(source), expected.tokens.shape[2]
        np.testing.assert_array_equal(found["tokens"][:, :, :length], expected.tokens)
        np.testing.assert_allclose(found["scores"], expected.scores, atol=1e-4)
