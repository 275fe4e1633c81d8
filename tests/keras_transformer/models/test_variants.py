"""Models with the parts that a configuration names: saved, trained, cached and uncached, packed."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.config import PRESETS
from keras_transformer.decoding import BeamSearch, GreedySearch

to_numpy = keras.ops.convert_to_numpy
SIZES = {"vocab_size": 23, "num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 13, "dropout": 0.0}
VARIANTS = {
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "no positions": {"positions": "none"},
    "grouped queries": {"num_kv_heads": 2},
    "multi-query": {"num_kv_heads": 1, "use_bias": False},
    "norms of queries and keys": {"qk_norm": True},
    "soft cap": {"soft_cap": 2.0},
    "window": {"window": 3},
    "RMS norms": {"norm": "rms", "norm_first": True},
    "gated": {"feed_forward": "gated", "activation": "silu"},
    "norms of embeddings, scaled logits": {"embedding_norm": True, "logits_scale": 0.2, "scale_embedding": False},
    "several": {"positions": "rotary", "qk_norm": True, "window": 4, "num_kv_heads": 3, "norm": "rms", "soft_cap": 5.0},
    "modern": {**PRESETS["modern"], "d_ff": 13},
}
SOURCE = np.array([[5, 6, 7, 8, 9, 3], [10, 11, 3, 0, 0, 0]], "int32")
TARGET = np.array([[2, 12, 13, 14, 15], [2, 16, 17, 0, 0]], "int32")


def variants(mark):
    """Parametrizes `config`: a few variants in the tier of the test, and the others with a mark."""
    quick = ("relative", "several", "modern")
    params = [pytest.param(name, marks=() if name in quick else mark) for name in VARIANTS]
    return pytest.mark.parametrize("config", params, indirect=True)


@pytest.fixture
def config(request):
    """A configuration with the parts of a variant."""
    return kt.TransformerConfig(**{**SIZES, **VARIANTS[request.param]})


@pytest.fixture
def model(config, randomize):
    return randomize(kt.Transformer(config), scale=0.3)


@variants(pytest.mark.slow)
def test_a_model_is_saved_loaded_and_copied(model, tmp_path):
    model.save(tmp_path / "model.keras")
    inputs = {"source": SOURCE, "target": TARGET}
    np.testing.assert_array_equal(to_numpy(kt.load_model(tmp_path / "model.keras")(inputs)), to_numpy(model(inputs)))
    copy = kt.Transformer.from_config(model.get_config())
    assert [w.path for w in copy.weights] == [w.path for w in model.weights]


@variants(pytest.mark.slow)
def test_cached_steps_equal_one_full_pass(model):
    memory, mask = model.encode(SOURCE)
    full = to_numpy(model.decode(TARGET, memory))
    caches = model.decoder.empty_cache(2, 5)
    projected = model.decoder.project_memory(memory)
    for offset in range(3):  # Row 1 has three tokens; a cache has no padding.
        logits, caches = model.decode(TARGET[:, offset], projected, mask, cache=caches, offset=offset)
        np.testing.assert_allclose(to_numpy(logits), full[:, offset], atol=2e-4)


@variants(pytest.mark.slow)
def test_packed_rows_equal_separate_ones(model):
    def packed(first, second, lengths):
        return np.concatenate([first[0, : lengths[0]], second[1, : lengths[1]]])[None]

    inputs = {"source": packed(SOURCE, SOURCE, (6, 3)), "target": packed(TARGET, TARGET, (5, 3))}
    segments = {"source_segments": [[1] * 6 + [2] * 3], "target_segments": [[1] * 5 + [2] * 3]}
    together = to_numpy(model({**inputs, **{name: np.array(ids, "int32") for name, ids in segments.items()}}))
    apart = to_numpy(model({"source": SOURCE, "target": TARGET}))
    np.testing.assert_allclose(together[0], np.concatenate([apart[0], apart[1, :3]]), atol=2e-4)


@variants(pytest.mark.slow)
def test_later_tokens_and_padding_change_nothing(model):
    logits = to_numpy(model({"source": SOURCE, "target": TARGET}))
    padded = np.pad(SOURCE, ((0, 0), (0, 2)))
    later = np.where(np.arange(5) < 3, TARGET, 4)
    np.testing.assert_allclose(to_numpy(model({"source": padded, "target": later}))[:, :3], logits[:, :3], atol=2e-4)


@pytest.mark.slow
@variants(pytest.mark.nightly)
@pytest.mark.parametrize("strategy", [GreedySearch(extra_length=2), BeamSearch(beam_size=3, extra_length=2)])
def test_scores_of_a_search_are_those_of_one_full_pass(model, strategy):
    found = model.generate(SOURCE, strategy)
    tokens = found.tokens[:, 0]
    log_probs = model.token_log_probs(SOURCE, tokens).sum(1)
    lengths = (tokens != 0).sum(1)
    penalty = ((5 + lengths) / 6) ** getattr(strategy, "length_penalty", 0)
    np.testing.assert_allclose(found.scores[:, 0], log_probs / penalty, atol=1e-3)


@pytest.mark.slow
@variants(pytest.mark.nightly)
def test_a_step_trains_every_weight(config, few_steps):
    model = kt.Transformer(config)
    model.compile("adam", kt.losses.LabelSmoothedCrossEntropy(), **few_steps)
    before = [to_numpy(weight).copy() for weight in model.trainable_weights]
    inputs, labels = {"source": SOURCE, "target": TARGET}, np.array([[12, 13, 14, 15, 3], [16, 17, 3, 0, 0]])
    model.fit(inputs, labels, sample_weight=(labels != 0).astype("float32"), epochs=2, verbose=0)
    same = [w.path for w, old in zip(model.trainable_weights, before, strict=True) if (to_numpy(w) == old).all()]
    assert all("key/bias" in path for path in same)  # The bias of the keys changes no weight of the attention.


@variants(pytest.mark.slow)
@pytest.mark.parametrize("kind", [kt.LanguageModel, kt.MaskedLanguageModel])
def test_models_of_one_stack_have_the_parts(config, kind, tmp_path):
    model = kind(config)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(kt.load_model(tmp_path / "model.keras")(TARGET)), to_numpy(model(TARGET)))


def test_the_preset_modern_has_about_the_size_of_base():
    sizes = [
        kt.Transformer(kt.TransformerConfig.preset(name, vocab_size=100)).count_params() for name in ("base", "modern")
    ]
    assert 0.8 < sizes[1] / sizes[0] < 1.05
