"""Beam search with other parts beside exhaustive search: every hypothesis of a tiny vocabulary, scored in one pass."""

import itertools

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.decoding import BeamSearch, SpecialIds

to_numpy = keras.ops.convert_to_numpy
#: Of six tokens three are free, so there are 1 + 3 + 9 + 27 hypotheses of up to four tokens.
VOCAB, LIMIT, EVERYTHING = 6, 4, 40
FREE = (1, 4, 5)
SIZES = {"vocab_size": VOCAB, "num_layers": 2, "d_model": 12, "num_heads": 6, "d_ff": 13, "dropout": 0.0}
VARIANTS = {
    "modern": {
        **{"positions": "rotary", "norm": "rms", "feed_forward": "gated", "activation": "silu", "num_kv_heads": 2},
        **{"use_bias": False, "norm_first": True, "d_k": 4},
    },
    "rotary, groups": {"positions": "rotary", "num_kv_heads": 3},
    "relative": {"positions": "relative", "norm_first": True, "norm": "rms", "logits_scale": 0.5},
    "alibi, window": {"positions": "alibi", "window": 2},
    "window, one head of keys, soft cap": {"window": 3, "num_kv_heads": 1, "soft_cap": 2.0},
}
IDS = SpecialIds(pad=0, bos=2, eos=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "modern" else pytest.param(name, marks=pytest.mark.nightly) for name in VARIANTS]
)
@pytest.mark.parametrize("kind", [kt.Transformer, pytest.param(kt.LanguageModel, marks=pytest.mark.nightly)])
def test_a_beam_that_holds_everything_is_exhaustive_search(kind, name, randomize, reference):
    """The search runs step by step with caches, eagerly; the hypotheses are scored without a cache."""
    model = randomize(kind(kt.TransformerConfig(**SIZES, **VARIANTS[name])), scale=0.4)
    strategy = BeamSearch(beam_size=EVERYTHING, n_best=EVERYTHING, length_penalty=0.6, extra_length=LIMIT - 3)
    sources = np.array([[5, 1, 3], [4, 4, 3]], "int32")
    if kind is kt.LanguageModel:  # Its prompts are empty, so each row begins alike.
        sources, strategy = np.zeros((1, 0), "int32"), BeamSearch(**{**vars(strategy), "extra_length": LIMIT})
    found = model.search(keras.ops.convert_to_tensor(sources), strategy)
    for source, tokens, scores in zip(sources, to_numpy(found.tokens), to_numpy(found.scores), strict=True):
        log_probs = all_log_probs(model, source, reference)
        expected = reference.all_hypotheses(log_probs, LIMIT, IDS, strategy.length_penalty, "gnmt")
        assert len(expected) == EVERYTHING
        np.testing.assert_allclose(scores, [score for score, _ in expected], atol=1e-4)
        assert [tuple(row[row != IDS.pad].tolist()) for row in tokens] == [hypothesis for _, hypothesis in expected]


def all_log_probs(model, source, reference):
    """A function of a prefix that gives the log probabilities of the next token, computed for all prefixes at once."""
    prefixes = np.array([*itertools.product(FREE, repeat=LIMIT - 1)], "int32")
    target = np.pad(prefixes, ((0, 0), (1, 0)), constant_values=IDS.bos)
    if isinstance(model, kt.Transformer):
        logits = model({"source": np.repeat(source[None], len(target), axis=0), "target": target})
    else:
        logits = model(target)
    found = reference.log_softmax(to_numpy(logits))
    table = {
        tuple(row[:length]): found[i, length] for i, row in enumerate(prefixes.tolist()) for length in range(LIMIT)
    }
    return table.__getitem__
