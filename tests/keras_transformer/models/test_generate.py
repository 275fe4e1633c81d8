import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, Transformer, TransformerConfig
from keras_transformer.cache import KeyValue
from keras_transformer.decoding import BeamSearch, GreedySearch, Hypotheses, SearchInputs, SpecialIds, run_search

to_numpy, ops = keras.ops.convert_to_numpy, keras.ops
VOCAB, EOS = 11, 3
SOURCE = np.array([[4, 5, 6, 7, 8, 3], [9, 10, 3, 0, 0, 0], [3, 0, 0, 0, 0, 0], [7, 7, 7, 3, 0, 0]], "int32")
BEAM = BeamSearch(beam_size=3, n_best=3, extra_length=3, length_penalty=0.6)
GREEDY = GreedySearch(extra_length=3)


def make(randomize, seed=3, **fields):
    sizes = {"vocab_size": VOCAB, "num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 13}
    return randomize(Transformer(TransformerConfig(**{**sizes, **fields})), seed=seed, scale=0.4)


@pytest.fixture(scope="module")
def model(randomize):
    """The tests leave it as it is, so that each strategy is compiled once."""
    return make(randomize)


def hypothesis(tokens):
    tokens = [int(token) for token in tokens]
    return tuple(tokens[: tokens.index(EOS) + 1]) if EOS in tokens else None


def assert_same(ours, others, atol=1e-4):
    np.testing.assert_allclose(ours.scores, others.scores, atol=atol)
    for one, other in zip(ours.tokens, others.tokens, strict=True):
        assert [hypothesis(row) for row in one] == [hypothesis(row) for row in other]


def uncached(model, source, strategy):
    """The same search with a whole forward pass at each step."""
    config = model.config
    mask = source != config.pad_id
    max_length = source.shape[1] + strategy.extra_length
    beams = np.repeat(np.arange(len(source)), strategy.beam_size)
    start_memory = (model.encode(source, mask)[0], ops.convert_to_tensor(mask))

    def next_logits(tokens, cache, memory, offset):
        memory, mask = (ops.repeat(x, strategy.beam_size, axis=0) for x in memory)
        history, rows = cache[0]
        history = ops.where(ops.arange(max_length) == offset, tokens[:, None], history)
        logits = model.decode(history, memory, memory_mask=mask)
        here = ops.cast(ops.arange(max_length) == offset, logits.dtype)[:, None]
        return ops.sum(logits * here, axis=1), (KeyValue(history, rows),)

    history = ops.zeros((len(beams), max_length), "int32")
    limits = SearchInputs(ops.convert_to_tensor(np.maximum(mask.sum(-1) + strategy.extra_length, 1), "int32"))
    start = (KeyValue(history, ops.zeros((len(beams),), "int32")),)
    found = run_search(strategy, next_logits, start, start_memory, limits, max_length, SpecialIds())
    return Hypotheses(to_numpy(found.tokens), to_numpy(found.scores))


def teacher_forced_score(model, source, tokens, penalty):
    """log p of `tokens` given one unpadded source, over their penalty, from one plain forward pass."""
    shifted = np.array([[model.config.bos_id, *tokens[:-1]]])
    logits = to_numpy(model({"source": source[None], "target": shifted}))[0].astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return log_probs[np.arange(len(tokens)), list(tokens)].sum() / penalty(len(tokens))


def test_returns_arrays_with_their_types_and_shapes(model):
    tokens, scores, _ = model.generate(SOURCE, BEAM)
    assert isinstance(tokens, np.ndarray) and tokens.dtype == np.int32
    assert isinstance(scores, np.ndarray) and scores.dtype == np.float32
    assert tokens.shape[:2] == scores.shape == (4, 3)
    assert tokens[:, :, -1].any()  # As long as the longest.
    assert ((tokens >= 0) & (tokens < VOCAB)).all()
    for row in tokens.reshape(-1, tokens.shape[-1]):
        assert not row[len(hypothesis(row)) :].any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "fields"),
    [
        (BEAM, {"num_layers": 2, "seed": 6}),
        (BEAM, {"positions": "learned", "max_length": 16, "seed": 6}),
        pytest.param(GREEDY, {"norm_first": True}, marks=pytest.mark.portable),
    ],
    ids=["beam", "learned", "greedy"],
)
def test_cached_search_equals_uncached_search(fields, strategy, randomize):
    model = make(randomize, **fields)
    found = model.generate(SOURCE, strategy)
    # In a plain forward pass a padding token inside a hypothesis would be masked.
    assert not {0, 2} & {token for rows in found.tokens for row in rows for token in hypothesis(row)}
    assert_same(found, uncached(model, SOURCE, strategy))


@pytest.mark.parametrize("strategy", [BEAM, GREEDY], ids=["beam", "greedy"])
@pytest.mark.portable
def test_scores_are_the_teacher_forced_ones(model, strategy, reference):
    alpha = getattr(strategy, "length_penalty", 0.0)
    tokens, scores, _ = model.generate(SOURCE, strategy)
    for ids, rows, row_scores in zip(SOURCE, tokens, scores, strict=True):
        for row, score in zip(rows, row_scores, strict=True):
            forced = teacher_forced_score(
                model, ids[ids != 0], hypothesis(row), lambda n: reference.penalty(n, alpha, "gnmt")
            )
            assert score == pytest.approx(forced, abs=1e-4)


def test_hypotheses_differ_and_are_in_order(model):
    tokens, scores, _ = model.generate(SOURCE, BEAM)
    assert (np.diff(scores, axis=-1) <= 0).all()
    for rows in tokens:
        assert len({hypothesis(row) for row in rows}) == 3
    assert len({hypothesis(rows[0]) for rows in tokens}) > 1


def test_each_sentence_alone_gives_the_same(model):
    together = model.generate(SOURCE, BEAM)
    for i, ids in enumerate(SOURCE):
        alone = model.generate(ids[None, ids != 0], BEAM)
        assert_same(alone, Hypotheses(together.tokens[i : i + 1], together.scores[i : i + 1]))


def test_more_padding_changes_nothing(model):
    assert_same(model.generate(np.pad(SOURCE, ((0, 0), (0, 13))), BEAM), model.generate(SOURCE, BEAM))


@pytest.mark.portable
def test_one_best_is_the_first_of_four(model):
    four = model.generate(SOURCE, BeamSearch(beam_size=4, n_best=4, extra_length=4))
    one = model.generate(SOURCE, BeamSearch(beam_size=4, n_best=1, extra_length=4))
    assert_same(one, Hypotheses(four.tokens[:, :1], four.scores[:, :1]))


@pytest.mark.portable
def test_a_beam_of_one_is_greedy_search(model):
    assert_same(
        model.generate(SOURCE, GREEDY),
        model.generate(SOURCE, BeamSearch(beam_size=1, length_penalty=0, extra_length=3)),
    )


@pytest.mark.portable
def test_length_is_at_most_the_sources_and_the_extra(randomize):
    model = make(randomize, norm_first=True)
    tokens, *_ = model.generate(SOURCE, BeamSearch(beam_size=3, n_best=3, extra_length=2, length_penalty=3.0))
    lengths = np.array([[len(hypothesis(row)) for row in rows] for rows in tokens])
    limits = (SOURCE != 0).sum(-1) + 2
    assert (lengths <= limits[:, None]).all()
    assert (lengths.max(-1) == limits).any()


def test_learned_positions_end_the_hypothesis(randomize):
    model = make(randomize, positions="learned", max_length=7)
    tokens, *_ = model.generate(SOURCE, BeamSearch(beam_size=2, extra_length=50, length_penalty=3.0))
    assert tokens.shape[-1] <= 7
    with pytest.raises(ValueError, match="`source`.*`max_length`=7.*Received: source_length=8"):
        model.generate(np.full((1, 8), 4))


def test_a_source_of_padding_alone_gives_something_finite(model):
    tokens, scores, _ = model.generate(np.zeros((2, 3), "int32"), BEAM)
    assert np.isfinite(scores).all() and hypothesis(tokens[0, 0])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.portable
def test_mixed_precision_gives_finite_float32_scores(policy, randomize):
    config = TransformerConfig(vocab_size=VOCAB, num_layers=1, d_model=8, num_heads=2, d_ff=13)
    model = randomize(Transformer(config, dtype=policy), scale=0.4)
    tokens, scores, _ = model.generate(SOURCE, BEAM)
    assert scores.dtype == np.float32 and np.isfinite(scores).all()
    assert all(hypothesis(row) for row in tokens.reshape(-1, tokens.shape[-1]))


def test_new_weights_are_used(randomize):
    model = make(randomize)
    before = model.generate(SOURCE, GREEDY)
    randomize(model, seed=11, scale=0.4)
    after = model.generate(SOURCE, GREEDY)
    assert np.abs(before.scores - after.scores).max() > 1e-3
    assert_same(after, uncached(model, SOURCE, GREEDY))


@pytest.mark.portable
def test_separate_vocabularies_have_their_own_ranges(randomize):
    model = make(randomize, share_embeddings=False, source_vocab_size=23)
    source = np.array([[22, 21, 3]])
    assert model.generate(source, GREEDY).tokens.max() < VOCAB
    with pytest.raises(ValueError, match=r"`source`.*\[0, 23\).*Received: id=23"):
        model.generate([[23]])


def test_lists_and_any_integer_type_are_taken(model):
    expected = model.generate(SOURCE, GREEDY)
    assert_same(model.generate(SOURCE.tolist(), GREEDY), expected)
    assert_same(model.generate(SOURCE.astype("uint8"), GREEDY), expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([[4, VOCAB]], r"`source`.*\[0, 11\).*Received: id=11"),
        ([[4, -1]], r"`source`.*\[0, 11\).*Received: id=-1"),
        ([[4.0, 5.0]], r"`source`.*\(batch, source_length\).*Received: shape=\(1, 2\), dtype=float64"),
        ([4, 5], r"`source`.*Received: shape=\(2,\)"),
        ([[[4, 5]]], r"`source`.*Received: shape=\(1, 1, 2\)"),
        ([["a", "b"]], r"`source`.*Received: shape=\(1, 2\), dtype=<U1"),
        ([[True, False]], r"`source`.*Received: shape=\(1, 2\), dtype=bool"),
        ([[4, 5], [6]], r"`source`.*`pad_id`.*Received: source=\[\[4, 5\], \[6\]\]"),
        ([], r"`source`.*Received: shape=\(0,\)"),
    ],
)
def test_bad_sources_are_refused(model, source, message):
    with pytest.raises(ValueError, match=message):
        model.generate(source)


@pytest.mark.parametrize(("shape", "n_best"), [((0, 5), 1), ((0, 0), 2), ((2, 0), 2)])
def test_an_empty_batch_gives_empty_hypotheses(model, shape, n_best):
    tokens, scores, _ = model.generate(np.zeros(shape, "int32"), BeamSearch(n_best=n_best))
    assert tokens.shape == (shape[0], n_best, 0) and tokens.dtype == np.int32
    assert scores.shape == (shape[0], n_best) and scores.dtype == np.float32


def test_search_runs_inside_a_users_graph(model):
    """`Transformer.search` is `generate` for graphs."""

    class Serving(keras.Model):
        def call(self, source):
            return tuple(model.search(source, BEAM)[:2])

    serving = Serving()
    serving.jit_compile = False
    tokens, scores = serving.predict_on_batch(SOURCE.astype("int32"))
    assert_same(Hypotheses(tokens, scores), model.generate(SOURCE, BEAM))


def test_generators_are_not_part_of_the_model(model):
    layers, weights = len(model.layers), len(model.weights)
    model.generate(SOURCE, GREEDY)
    assert (len(model.layers), len(model.weights)) == (layers, weights)


@pytest.mark.parametrize("strategy", ["beam", BeamSearch, 4])
def test_a_strategy_of_another_kind_is_refused(model, strategy):
    with pytest.raises(ValueError, match=r"`strategy`.*BeamSearch\(.*Received: strategy="):
        model.generate(SOURCE, strategy)
    with pytest.raises(ValueError, match="`strategy`.*Received: strategy="):
        LanguageModel(model.config).generate([[4]], strategy)
