"""Streams of tokens: the columns of what `generate` returns, one after another."""

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer import LanguageModel, Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling

VOCAB = 19
SIZES = {"vocab_size": VOCAB, "num_layers": 2, "d_model": 22, "num_heads": 2, "d_ff": 13}
SOURCE = np.array([[5, 6, 7, 3], [8, 3, 0, 0], [9, 10, 3, 0]], "int32")
PROMPTS = {
    "ragged": [[5, 6, 7], [8, 9, 0]],
    "empty": [[0], [0]],
    "one empty": [[5, 6], [0, 0]],
    "longer than a step of static lengths": [[*range(4, 18), 5, 6, 7, 7], [*range(4, 18), 5, 6, 0, 0]],
}
GREEDY = GreedySearch(extra_length=5, min_length=3)
STRATEGIES = {
    "greedy": GREEDY,
    "samples": Sampling(seed=4, n_samples=2, extra_length=5, token_scores=True),
    "options": GreedySearch(extra_length=6, min_length=22, no_repeat_ngram_size=2, repetition_penalty=1.4),
}


@pytest.fixture(scope="module")
def language_model(randomize):
    return randomize(LanguageModel(TransformerConfig(**SIZES)), scale=0.3)


def expect_columns(streamed, expected):
    """Compares a stream with tokens `(batch, n_best, length)`."""
    columns = [*streamed]
    assert all(column.dtype == "int32" for column in columns)
    np.testing.assert_array_equal(np.stack(columns, axis=-1), expected)


@pytest.mark.portable
@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(prompt, id=name, marks=[pytest.mark.nightly] * (name != "ragged"))
        for name, prompt in PROMPTS.items()
    ],
)
def test_a_stream_continues_the_shortest_prompt_as_generate_does(language_model, prompt, strategy):
    shortest = (np.array(prompt) != 0).sum(axis=1).min()
    expected = language_model.generate(prompt, strategy).tokens
    assert expected.shape[2] > max((np.array(prompt) != 0).sum(axis=1))
    expect_columns(language_model.stream(prompt, strategy), expected[:, :, shortest:])


@pytest.mark.parametrize("prefix", [None, [[4, 5], [6, 0], [7, 8]]])
@pytest.mark.parametrize("strategy", [GREEDY, BeamSearch(beam_size=1, extra_length=4), STRATEGIES["samples"]])
def test_a_stream_of_a_transformer_is_what_it_generates(transformer, strategy, prefix):
    expected = transformer.generate(SOURCE, strategy, prefix).tokens
    expect_columns(transformer.stream(SOURCE, strategy, prefix), expected)


@pytest.fixture(scope="module")
def transformer(randomize):
    return randomize(Transformer(TransformerConfig(**SIZES)), scale=0.3)


def test_an_ensemble_streams(transformer, randomize):
    other = randomize(Transformer(TransformerConfig(**SIZES)), scale=0.2, seed=3)
    ensemble = kt.Ensemble([transformer, other])
    expect_columns(ensemble.stream(SOURCE, GREEDY), ensemble.generate(SOURCE, GREEDY).tokens)


@pytest.mark.portable
def test_a_stream_in_half_precision(randomize):
    model = randomize(Transformer(TransformerConfig(**SIZES), dtype="mixed_bfloat16"), scale=0.3)
    expect_columns(model.stream(SOURCE, GREEDY), model.generate(SOURCE, GREEDY).tokens)


def test_the_first_token_is_there_before_the_last(language_model, monkeypatch):
    steps = []
    compiled = language_model._compiled

    def counting(function, **options):
        found = compiled(function, **options)
        run = found.run_tensors
        monkeypatch.setattr(found, "run_tensors", lambda *args: steps.append(function.__name__) or run(*args))
        return found

    monkeypatch.setattr(language_model, "_compiled", counting)
    stream = language_model.stream(PROMPTS["ragged"][:1], GREEDY)
    assert not steps
    next(stream)
    feeds_block = keras.backend.backend() != "jax"  # Static lengths are fed in blocks of 16.
    assert steps == ["start_stream", *["continue_stream"] * (1 if feeds_block else 4)]


@keras.saving.register_keras_serializable(package="test_streaming")
class AverageAttention(keras.layers.Layer):
    """Causal attention with equal weights. With a cache it takes one position at a time, as layers of users may."""

    def call(self, query, value_mask=None, use_causal_mask=True, cache=None, offset=0):
        if cache is None:
            count = keras.ops.arange(1, keras.ops.shape(query)[1] + 1)
            return keras.ops.cumsum(query, axis=1) / keras.ops.cast(count[:, None], query.dtype)
        return (cache + query) / keras.ops.cast(offset + 1, query.dtype), cache + query

    def empty_cache(self, batch_size, max_length):
        return keras.ops.zeros((batch_size, 22))


@pytest.mark.portable
def test_layers_of_users_get_one_position_at_a_time(randomize):
    block = kt.layers.CausalDecoderLayer(
        attention=AverageAttention(), feed_forward=kt.layers.FeedForward(22, 13), norm_first=True
    )
    model = randomize(LanguageModel(TransformerConfig(**SIZES), layer=block), scale=0.3)
    prompt = [[5, 6, 7], [8, 9, 10]]
    expect_columns(model.stream(prompt, GREEDY), model.generate(prompt, GREEDY).tokens[:, :, 3:])


@pytest.mark.portable
def test_a_stream_ends_at_the_last_learned_position(randomize):
    model = randomize(LanguageModel(TransformerConfig(**SIZES, positions="learned", max_length=7)), scale=0.3)
    strategy = GreedySearch(min_length=20)
    expected = model.generate([[5, 6, 7, 8]], strategy).tokens
    assert expected.shape[2] == 7
    expect_columns(model.stream([[5, 6, 7, 8]], strategy), expected[:, :, 4:])


def test_the_call_itself_refuses_a_wrong_number_of_seeds(transformer):
    with pytest.raises(ValueError, match="`seed` must .*2 seeds for 3 sentences"):
        transformer.stream(SOURCE, Sampling(seed=[1, 2]))


def test_empty_batches_yield_nothing(language_model, transformer):
    assert [*language_model.stream(np.zeros((0, 3), "int32"))] == []
    assert [*transformer.stream(np.zeros((0, 3), "int32"))] == []


def test_a_beam_search_is_refused_before_work(language_model, transformer):
    for model in (language_model, transformer):
        with pytest.raises(ValueError, match="`strategy` must be a GreedySearch or Sampling.*beam_size=4"):
            model.stream([[5, 6]], BeamSearch())
        with pytest.raises(ValueError, match="`strategy` must be a BeamSearch, GreedySearch or Sampling"):
            model.stream([[5, 6]], "greedy")
