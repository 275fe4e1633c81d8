"""Sampling: the frequencies of what is drawn against the exact truncated distribution."""

import keras
import numpy as np
import pytest

from keras_transformer.cache import KeyValue
from keras_transformer.decoding import Sampling, SearchInputs, SpecialIds, run_search

to_numpy, ops = keras.ops.convert_to_numpy, keras.ops
ROWS = 4000
#: Padding, unknown, start, end, and five more; padding and start are the likeliest, and never drawn.
LOGITS = np.array([3.0, -1.0, 2.5, 0.3, 1.2, 0.9, -0.4, 1.7, -3.0], "float32")
DRAWABLE = np.array([1, 3, 4, 5, 6, 7, 8])
SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 50},
    {"top_p": 0.01},
    {"top_p": 0.6},
    {"top_p": 0.95, "temperature": 2.0},
    {"top_k": 4, "top_p": 0.7, "temperature": 1.5},
    {"min_length": 1},
    {"min_length": 1, "top_k": 5},
]


def distribution(top_k=0, top_p=1.0, temperature=1.0, min_length=0):
    """What may be drawn first, by the definitions, one token at a time."""
    tokens = [t for t in DRAWABLE if not (min_length and t == 3)]
    tokens = sorted(tokens, key=lambda t: -LOGITS[t])[: top_k or None]
    weights = np.exp(LOGITS[tokens].astype("float64") / temperature)
    weights /= weights.sum()
    kept = np.searchsorted(np.cumsum(weights), top_p) + 1  # The fewest that reach it.
    result = np.zeros(len(LOGITS))
    result[tokens[:kept]] = weights[:kept] / weights[:kept].sum()
    return result


def draw(strategy, noise):
    """First tokens and scores, `(rows, n_samples)`; the second token is a forced end."""

    def next_logits(tokens, cache, memory, offset):
        return ops.broadcast_to(LOGITS, (ops.shape(tokens)[0], len(LOGITS))), cache

    beginning = ops.zeros((len(noise) * strategy.n_samples,), "int32")
    cache = (KeyValue(beginning, beginning),)
    sentences = SearchInputs(ops.full((len(noise),), 2, "int32"), noise=ops.convert_to_tensor(noise))
    found = run_search(strategy, next_logits, cache, (), sentences, 2, SpecialIds())
    return to_numpy(found.tokens), to_numpy(found.scores)


def test_the_largest_noise_draws_a_token_that_is_allowed():
    tokens, scores = draw(Sampling(min_length=1, top_k=2), np.ones((3, 1, 2), "float32"))
    assert set(tokens[:, 0, 0]) <= {7, 4} and (scores > -10).all()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_evenly_spaced_noise_gives_the_distribution_itself(settings):
    levels = ((np.arange(ROWS) + 0.5) / ROWS).astype("float32")
    tokens, scores = draw(Sampling(**settings), np.broadcast_to(levels[:, None, None], (ROWS, 1, 2)))
    frequencies = np.bincount(tokens[:, 0, 0], minlength=len(LOGITS)) / ROWS
    np.testing.assert_allclose(frequencies, distribution(**settings), atol=2 / ROWS)
    # The score is that of the whole, untempered distribution.
    log_probs = LOGITS - np.log(np.exp(LOGITS.astype("float64")).sum())
    expected = log_probs[tokens[:, 0, 0]] + np.where(tokens[:, 0, 0] == 3, 0, log_probs[3])
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"top_k": 4, "top_p": 0.7, "temperature": 1.5}], ids=str)
def test_random_tokens_have_the_distribution(settings):
    strategy = Sampling(**settings, seed=3, n_samples=2)
    tokens, _ = draw(strategy, strategy.noise(ROWS // 2, 2))
    frequencies = np.bincount(tokens[:, :, 0].ravel(), minlength=len(LOGITS)) / ROWS
    np.testing.assert_allclose(frequencies, distribution(**settings), atol=4 * 0.5 / np.sqrt(ROWS))
    assert (tokens[:, 0] != tokens[:, 1]).any()


@pytest.mark.parametrize("level", [0.0, np.nextafter(np.float32(1), np.float32(0))])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.portable
def test_the_ends_of_the_noise_draw_what_may_be_drawn(settings, level):
    tokens, _ = draw(Sampling(**settings), np.full((1, 1, 2), level, "float32"))
    possible = np.flatnonzero(distribution(**settings))
    expected = max(possible, key=lambda t: LOGITS[t] if level == 0 else -LOGITS[t])
    assert tokens[0, 0, 0] == expected


def test_noise_repeats_by_its_seed_and_begins_alike_whatever_the_length():
    strategy = Sampling(seed=5, n_samples=3)
    noise = strategy.noise(4, 11)
    assert noise.shape == (4, 3, 11) and noise.dtype == np.float32 and 0 <= noise.min() < noise.max() < 1
    np.testing.assert_array_equal(strategy.noise(4, 7), noise[:, :, :7])
    assert (Sampling(seed=6, n_samples=3).noise(4, 11) != noise).mean() > 0.99
    unseeded = Sampling(n_samples=3)
    assert (unseeded.noise(4, 11) != unseeded.noise(4, 11)).mean() > 0.99
    assert len(np.unique(noise)) == noise.size


def test_the_noise_follows_its_sentence_through_the_rounds(scripted):
    """Sentences with different limits finish one after another. Each has the same result as alone."""
    script = scripted(6, seed=12, eos_bonus=-3.0, limit=6)
    strategy = Sampling(seed=1, n_samples=2)
    noise, limits = strategy.noise(6, 6), [6, 1, 5, 3, 2, 4]
    tokens, scores = script.run(strategy, limits=limits, max_length=6, noise=ops.convert_to_tensor(noise))
    assert len({tuple(row) for rows in tokens for row in rows}) > 8
    table = script.table
    for i, limit in enumerate(limits):
        script.table, script.sentences = table[i : i + 1], 1
        alone = {"noise": ops.convert_to_tensor(noise[i : i + 1])}
        alone_tokens, alone_scores = script.run(strategy, limits=[limit], max_length=6, **alone)
        np.testing.assert_allclose(alone_scores[0], scores[i], atol=1e-4)
        length = min(alone_tokens.shape[2], tokens.shape[2])
        np.testing.assert_array_equal(alone_tokens[0, :, :length], tokens[i, :, :length])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": -1}, "`top_k`.*Received: top_k=-1"),
        ({"top_p": 0.0}, r"`top_p`.*Received: top_p=0.0"),
        ({"top_p": 1.1}, r"`top_p`.*Received: top_p=1.1"),
        ({"temperature": 0.0}, "`temperature`.*Received: temperature=0.0"),
        ({"temperature": float("nan")}, "`temperature`.*Received: temperature=nan"),
        ({"n_samples": 0}, "`n_samples`.*Received: n_samples=0"),
        ({"seed": -1}, "`seed`.*Received: seed=-1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**arguments)
