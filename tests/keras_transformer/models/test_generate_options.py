"""Options of `generate` beside the beam, and scores of given pairs."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, run_search
from keras_transformer.layers import DecoderLayer

to_numpy = keras.ops.convert_to_numpy
VOCAB, EOS = 11, 3
SOURCE = np.array([[4, 5, 6, 7, 8, 3], [9, 10, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0], [7, 7, 7, 3, 0, 0]], "int32")
PREFIX = np.array([[5, 6], [9, 0], [0, 0], [1, 4]], "int32")
GREEDY = GreedySearch(extra_length=3, token_scores=True)
SCORED = {
    "greedy": GREEDY,
    "beam": BeamSearch(beam_size=3, n_best=3, extra_length=3, token_scores=True),
    "sampling": Sampling(extra_length=3, token_scores=True, n_samples=2, seed=1),
}

STRATEGIES = [
    pytest.param(strategy, id=name, marks=() if name == "beam" else pytest.mark.portable)
    for name, strategy in SCORED.items()
]


def make(randomize, seed=3, **fields):
    sizes = {"vocab_size": VOCAB, "num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 13}
    return randomize(Transformer(TransformerConfig(**{**sizes, **fields})), seed=seed, scale=0.4)


@pytest.fixture(scope="module")
def model(randomize):
    """The tests leave it as it is, so that each strategy is compiled once."""
    return make(randomize)


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [pytest.param(None, marks=pytest.mark.nightly), PREFIX], ids=["free", "prefix"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_token_scores_are_the_teacher_forced_ones(model, strategy, prefix, reference):
    tokens, scores, token_scores = model.generate(SOURCE, strategy, prefix)
    assert token_scores.shape == tokens.shape and token_scores.dtype == np.float32
    penalties = reference.penalty((tokens != 0).sum(axis=2), strategy.length_penalty, "gnmt")
    np.testing.assert_allclose(token_scores.sum(axis=2) / penalties, scores, atol=1e-4)
    for rank in range(strategy.n_best):
        np.testing.assert_allclose(token_scores[:, rank], model.token_log_probs(SOURCE, tokens[:, rank]), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_hypothesis_begins_with_its_prefix(model, strategy):
    free, led = model.generate(SOURCE, strategy), model.generate(SOURCE, strategy, PREFIX.tolist())
    for row, ids in enumerate(PREFIX):
        ids = ids[ids != 0]
        assert (led.tokens[row, :, : len(ids)] == ids).all()
    length = min(free.tokens.shape[2], led.tokens.shape[2])
    np.testing.assert_array_equal(free.tokens[2, :, :length], led.tokens[2, :, :length])
    assert (free.tokens[0, :, :2] != led.tokens[0, :, :2]).any()


@pytest.mark.portable
def test_greedy_search_continues_its_own_prefix_as_before(model):
    expected = model.generate(SOURCE, GREEDY)
    prefix = np.where(expected.tokens[:, 0, :2] == EOS, 0, expected.tokens[:, 0, :2])
    found = model.generate(SOURCE, GREEDY, prefix)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)


@pytest.mark.portable
def test_a_prefix_longer_than_the_limit_is_followed_by_the_end(model):
    prefix = np.full((4, 11), 5)
    tokens = model.generate(SOURCE, GREEDY, prefix).tokens[:, 0]
    assert tokens.shape[1] == 12
    assert (tokens[:, :11] == 5).all() and (tokens[:, 11] == EOS).all()


@pytest.mark.portable
def test_padding_of_prefixes_may_be_of_any_length(model):
    padded = np.pad(PREFIX, [(0, 0), (0, 40)])
    found = model.generate(SOURCE, GREEDY, padded)
    np.testing.assert_array_equal(found.tokens, model.generate(SOURCE, GREEDY, PREFIX).tokens)


@pytest.mark.portable
def test_a_prefix_without_columns_changes_nothing(model):
    found, expected = model.generate(SOURCE, GREEDY, np.zeros((4, 0), "int32")), model.generate(SOURCE, GREEDY)
    np.testing.assert_array_equal(found.tokens, expected.tokens)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (PREFIX[:3], "`prefix`.*`source`.*Received: 3 and 4 rows"),
        (PREFIX[:, ::-1], r"`prefix`.*padding.*Received: prefix\[1\]=\[0, 9\]"),
        ([[2, 5]] * 4, "`prefix`.*`bos_id`.*Received: bos_id=2"),
        ([[5, 3]] * 4, "`prefix`.*`eos_id`.*Received: eos_id=3"),
        ([[VOCAB]] * 4, r"`prefix`.*\[0, 11\).*Received: id=11"),
        ([5, 6, 7, 8], r"`prefix`.*\(batch, prefix_length\).*Received: shape=\(4,\)"),
        ([[5], [6, 7], [8], [9]], r"`prefix`.*`pad_id`.*Received: prefix=\[\[5\], \[6, 7\]"),
    ],
)
def test_bad_prefixes_are_refused(model, prefix, message):
    with pytest.raises(ValueError, match=message):
        model.generate(SOURCE, prefix=prefix)


@pytest.mark.portable
def test_a_prefix_leaves_a_learned_position_for_the_end(randomize):
    model = make(randomize, positions="learned", max_length=7)
    assert model.generate(SOURCE, GreedySearch(), np.full((4, 6), 5)).tokens[0, 0].tolist() == [5] * 6 + [EOS]
    with pytest.raises(ValueError, match="`prefix`.*`max_length`=7.*Received: prefix_length=7"):
        model.generate(SOURCE, GreedySearch(), np.full((4, 7), 5))


@pytest.mark.slow
@pytest.mark.portable
def test_hypotheses_have_the_minimal_length(model):
    lengths = [
        (model.generate(SOURCE, BeamSearch(extra_length=2, length_penalty=0.0, min_length=n)).tokens != 0).sum(axis=2)
        for n in (0, 5)
    ]
    limits = (SOURCE != 0).sum(axis=1) + 2
    assert (lengths[0][:, 0] < np.minimum(6, limits)).any()
    assert (lengths[1][:, 0] >= np.minimum(6, limits)).all()


def sampling(seed):
    return dataclasses.replace(SCORED["sampling"], seed=seed)


def test_samples_repeat_by_their_seed_and_differ_without_one(model, monkeypatch):
    one, same, other = (model.generate(SOURCE, sampling(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.tokens, same.tokens)
    np.testing.assert_array_equal(one.scores, same.scores)
    assert (one.scores != other.scores).any()

    def refuse(*args):
        raise AssertionError("the search was traced again")

    model.generate(SOURCE, sampling(None))
    monkeypatch.setattr("keras_transformer.models.model_search.run_search", refuse)
    drawn = [model.generate(SOURCE, sampling(seed)).scores.tobytes() for seed in (None, None, None, 3)]
    assert len(set(drawn)) == 4


def test_more_padding_changes_no_sample(model):
    strategy = SCORED["sampling"]
    one, other = model.generate(SOURCE, strategy), model.generate(np.pad(SOURCE, ((0, 0), (0, 13))), strategy)
    np.testing.assert_array_equal(one.tokens, other.tokens)


@pytest.mark.slow
@pytest.mark.portable
def test_samples_of_one_candidate_are_greedy_search(model):
    drawn, greedy = model.generate(SOURCE, Sampling(top_k=1, extra_length=3)), model.generate(SOURCE, GREEDY)
    np.testing.assert_array_equal(drawn.tokens, greedy.tokens)
    np.testing.assert_allclose(drawn.scores, greedy.scores, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.portable
def test_sampling_in_mixed_precision_keeps_its_noise(randomize, monkeypatch):
    config = TransformerConfig(vocab_size=VOCAB, num_layers=1, d_model=8, num_heads=2, d_ff=13)
    model, dtypes = randomize(Transformer(config, dtype="mixed_float16"), scale=0.4), set()

    def search(strategy, next_logits, cache, memory, sentences, *arguments):
        dtypes.add(keras.backend.standardize_dtype(sentences.noise.dtype))
        return run_search(strategy, next_logits, cache, memory, sentences, *arguments)

    monkeypatch.setattr("keras_transformer.models.model_search.run_search", search)
    assert np.isfinite(model.generate(SOURCE, Sampling()).scores).all()
    assert dtypes == {"float32"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_empty_batch_has_empty_token_scores(model, strategy):
    found = model.generate(np.zeros((0, 5), "int32"), strategy)
    assert found.token_scores.shape == found.tokens.shape == (0, strategy.n_best, 0)


@pytest.mark.portable
def test_token_log_probs_are_of_one_plain_pass(model, reference):
    target = np.array([[8, 9, 3, 0], [3, 0, 0, 0], [0, 0, 0, 0], [5, 5, 5, 5]])
    log_probs = model.token_log_probs(SOURCE, target)
    shifted = np.concatenate([np.full((4, 1), 2), target[:, :-1]], axis=1)
    for row in range(4):
        source = SOURCE[row : row + 1, : (SOURCE[row] != 0).sum()]
        logits = to_numpy(model({"source": source, "target": shifted[row : row + 1]}))[0]
        expected = np.take_along_axis(reference.log_softmax(logits), target[row][:, None], axis=1)[:, 0]
        np.testing.assert_allclose(log_probs[row], np.where(target[row] == 0, 0, expected), atol=1e-4)
    assert log_probs.dtype == np.float32 and (log_probs[0, :3] < 0).all()
    assert model.token_log_probs(SOURCE, np.zeros((4, 0), "int32")).shape == (4, 0)


@pytest.mark.portable
def test_attention_scores_are_those_of_the_layers(model):
    target = np.array([[8, 9, 3], [3, 0, 0], [5, 3, 0], [4, 5, 3]])
    scores = model.attention_scores(SOURCE, target)
    assert len(scores) == 2 and {x.shape for x in scores} == {(4, 2, 3, 6)}
    shifted = np.concatenate([np.full((4, 1), 2), target[:, :-1]], axis=1)
    logits, expected = model.decode(shifted, *model.encode(SOURCE), return_attention_scores=True)
    np.testing.assert_allclose(logits, model({"source": SOURCE, "target": shifted}), atol=1e-5)
    is_real = (target != 0)[:, None, :, None]
    for one, other in zip(scores, expected, strict=True):
        np.testing.assert_allclose(one, to_numpy(other) * is_real, atol=1e-5)
        np.testing.assert_allclose(one.sum(axis=3), np.broadcast_to(is_real[..., 0], (4, 2, 3)), atol=1e-5)
        assert not (one * (SOURCE == 0)[:, None, None]).any()
    assert np.abs(scores[0] - scores[1]).max() > 1e-3
    assert [x.shape for x in model.attention_scores(SOURCE, np.zeros((4, 0), "int32"))] == [(4, 2, 0, 6)] * 2


@pytest.mark.parametrize("method", ["token_log_probs", "attention_scores"])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([[5, 3]], "`source` and `target`.*rows.*Received: 4 and 1"),
        ([[VOCAB]] * 4, r"`target`.*\[0, 11\).*Received: id=11"),
        ([[0.5]] * 4, r"`target`.*\(batch, target_length\).*dtype=float64"),
    ],
)
def test_bad_pairs_are_refused(model, method, target, message):
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(SOURCE, target)


@keras.saving.register_keras_serializable(package="test_generate_options")
class MemoryMean(keras.layers.Layer):
    """A cross-attention that adds the projected mean of the memory, and has no attention weights."""

    def build(self, inputs_shape, value_shape):
        self.kernel = self.add_weight((value_shape[-1], inputs_shape[-1]))

    def call(self, inputs, value, value_mask=None, attention_mask=None):
        weights = keras.ops.cast(value_mask, inputs.dtype)[:, :, None]
        return inputs + keras.ops.sum(value * weights, axis=1, keepdims=True) @ self.kernel


@pytest.mark.portable
def test_a_cross_attention_without_weights_has_log_probs_and_no_attention_scores(randomize, reference):
    config = TransformerConfig(vocab_size=VOCAB, num_layers=1, d_model=8, num_heads=2, d_ff=13)
    model = randomize(Transformer(config, decoder_layer=DecoderLayer(8, 2, 13, cross_attention=MemoryMean())))
    target = np.array([[8, 9, 3]])
    logits = to_numpy(model({"source": SOURCE[:1], "target": np.array([[2, 8, 9]])}))
    expected = np.take_along_axis(reference.log_softmax(logits), target[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(model.token_log_probs(SOURCE[:1], target), expected, atol=1e-4)
    message = "must take `return_attention_scores`. Received: memory_mean.* of type MemoryMean in layer_0"
    with pytest.raises(ValueError, match=message):
        model.attention_scores(SOURCE[:1], target)
    with pytest.raises(ValueError, match=message):
        model.mean_attention(SOURCE[:1], target)
