"""Search over scripted logits: a table says what follows every possible beginning."""

import itertools

import keras
import numpy as np
import pytest

from keras_transformer import cache as kv_cache
from keras_transformer.decoding import (
    BeamSearch,
    GreedySearch,
    SearchInputs,
    SpecialIds,
    length_penalty,
    search,
)

to_numpy = keras.ops.convert_to_numpy
ops = keras.ops
VOCAB, LIMIT = 6, 4
IDS = SpecialIds(pad=0, bos=2, eos=3)
#: Hypotheses of up to four tokens, of which three are free: 1 + 3 + 9 + 27.
EVERYTHING = 40
PENALTIES = [("gnmt", 0.0), ("gnmt", 0.6), ("gnmt", 2.0), ("length", 0.5), ("length", 1.0), ("length", 3.0)]


@pytest.fixture
def count_steps(monkeypatch):
    """A list that receives the number of steps made when each round of a search ends."""
    steps, while_loop = [], ops.while_loop

    def counting(*args, **kwargs):
        state = while_loop(*args, **kwargs)
        if ops.ndim(state[0]) == 0:  # The loop over the rounds begins with the sentences.
            steps.append(int(state[0]))
        return state

    monkeypatch.setattr(search.ops, "while_loop", counting)
    return steps


def without_padding(tokens):
    """Up to and with the end token."""
    tokens = [int(token) for token in tokens]
    return tuple(tokens[: tokens.index(IDS.eos) + 1])


def assert_found(tokens, scores, expected):
    """One sentence's hypotheses, in their order."""
    np.testing.assert_allclose(scores, [score for score, _ in expected], atol=1e-4)
    assert [without_padding(row) for row in tokens] == [hypothesis for _, hypothesis in expected]
    for row in tokens:
        assert not row[len(without_padding(row)) :].any()


@pytest.mark.parametrize(("kind", "alpha"), PENALTIES)
def test_a_beam_that_holds_everything_is_exhaustive_search(kind, alpha, reference, scripted):
    strategy = BeamSearch(beam_size=EVERYTHING, n_best=EVERYTHING, length_penalty=alpha, length_penalty_kind=kind)
    script = scripted(3)
    tokens, scores = script.run(strategy)
    for sentence in range(3):
        expected = reference.all_hypotheses(script.log_probs(sentence, reference), LIMIT, IDS, alpha, kind)
        assert len(expected) == EVERYTHING
        assert_found(tokens[sentence], scores[sentence], expected)


@pytest.mark.parametrize(("kind", "alpha"), PENALTIES)
@pytest.mark.portable
def test_limits_are_each_sentences_own(kind, alpha, reference, scripted):
    limits = [2, 4, 1, 3]
    strategy = BeamSearch(beam_size=EVERYTHING, length_penalty=alpha, length_penalty_kind=kind)
    script = scripted(4, seed=1)
    tokens, scores = script.run(strategy, limits=limits)
    for sentence, limit in enumerate(limits):
        expected = reference.all_hypotheses(script.log_probs(sentence, reference), limit, IDS, alpha, kind)
        assert_found(tokens[sentence], scores[sentence], expected[:1])


@pytest.mark.parametrize(("kind", "alpha"), PENALTIES)
@pytest.mark.portable
def test_places_without_a_hypothesis_are_marked(kind, alpha, scripted):
    strategy = BeamSearch(beam_size=5, n_best=5, length_penalty=alpha, length_penalty_kind=kind)
    tokens, scores = scripted(2).run(strategy, limits=[1, 2])
    possible = np.array([[True] + [False] * 4, [True] * 4 + [False]])
    assert (scores[~possible] == search.NEG_INF).all()
    assert (scores[possible] > -100).all()
    assert not tokens[~possible].any()
    assert tokens[0, 0].tolist()[:2] == [IDS.eos, IDS.pad]


@pytest.mark.parametrize(
    ("beam_size", "penalty", "eos_bonus"),
    [
        # Quick tests have each value with most values of the others.
        pytest.param(beam_size, penalty, eos_bonus, marks=pytest.mark.slow if (i + j + k) % 3 else ())
        for i, beam_size in enumerate([2, 5])
        for j, penalty in enumerate(PENALTIES)
        for k, eos_bonus in enumerate([-2.0, 0.0, 2.0])
    ],
)
@pytest.mark.portable
def test_stopping_early_never_changes_the_result(beam_size, penalty, eos_bonus, reference, scripted):
    """The reference keeps the same beam and always runs to the limit."""
    kind, alpha = penalty
    script = scripted(10, seed=2, eos_bonus=eos_bonus)
    n_best = beam_size - 1
    strategy = BeamSearch(beam_size=beam_size, n_best=n_best, length_penalty=alpha, length_penalty_kind=kind)
    tokens, scores = script.run(strategy)
    for sentence in range(script.sentences):
        log_probs = script.log_probs(sentence, reference)
        expected = reference.beam_search(log_probs, LIMIT, IDS, alpha, kind, beam_size)
        assert_found(tokens[sentence], scores[sentence], expected[:n_best])


@pytest.mark.parametrize(("kind", "alpha"), PENALTIES[1:])
@pytest.mark.portable
def test_a_hypothesis_that_only_wins_at_the_limit_is_awaited(kind, alpha, reference, scripted):
    """The end is likelier after the first token, until the penalty of `LIMIT` tokens makes the other hypothesis win."""
    two, most = (reference.penalty(length, alpha, kind) for length in (2, LIMIT))
    script = scripted(1)
    script.table[:] = [-100, -100, 0, 0, -100, -100]  # The start token takes the rest of the probability.
    script.table[:, 0] = [-100, -100, 0, -1, -(two + most) / 2, -100]
    script.table[:, 1:, :, 4] = 200
    script.table[:, -1, :, IDS.eos] = 400
    tokens, scores = script.run(BeamSearch(beam_size=2, length_penalty=alpha, length_penalty_kind=kind))
    expected = reference.all_hypotheses(script.log_probs(0, reference), LIMIT, IDS, alpha, kind)[:1]
    assert len(expected[0][1]) == LIMIT
    assert_found(tokens[0], scores[0], expected)


@pytest.mark.parametrize("strategy", [GreedySearch(), BeamSearch(), BeamSearch(n_best=4)], ids=repr)
def test_really_stops_early(strategy, count_steps, scripted):
    script = scripted(3, eos_bonus=30.0)
    script.run(strategy)
    assert count_steps == [1 if strategy.n_best == 1 else 2]


def test_results_stay_while_another_sentence_continues(count_steps, reference, scripted):
    script = scripted(2, seed=3)
    script.table[0, ..., IDS.eos] += 30
    script.table[1, ..., IDS.eos] -= 30
    tokens, scores = script.run(BeamSearch())
    assert count_steps == [1, LIMIT] if kv_cache.GROWS else [LIMIT]
    assert without_padding(tokens[0, 0]) == (IDS.eos,)
    assert scores[0, 0] == pytest.approx(0, abs=1e-4)
    assert len(without_padding(tokens[1, 0])) == LIMIT


@pytest.mark.skipif(not kv_cache.GROWS, reason="shapes are static")
@pytest.mark.parametrize("strategy", [GreedySearch(), BeamSearch(beam_size=2)], ids=repr)
def test_finished_sentences_are_removed_from_the_batch(strategy, scripted):
    """Sentence i of six may have i + 1 tokens, and does not end before."""
    script = scripted(6, seed=12, eos_bonus=-30.0, limit=6)
    tokens, _ = script.run(strategy, limits=range(1, 7), max_length=6)
    assert [len(without_padding(row[0])) for row in tokens] == [*range(1, 7)]
    # A round ends when a quarter is finished: after steps 2, 3, 4, 5 and 6, with 4, 3, 2, 1 and 0 left.
    assert script.rows == [strategy.beam_size * left for left in (6, 6, 4, 3, 2, 1)]


def test_a_beam_of_one_without_penalty_is_greedy_search(scripted):
    script = scripted(30, seed=4)
    greedy, beam = script.run(GreedySearch()), script.run(BeamSearch(beam_size=1, length_penalty=0.0))
    assert [without_padding(row) for row in greedy[0][:, 0]] == [without_padding(row) for row in beam[0][:, 0]]
    np.testing.assert_allclose(greedy[1], beam[1], atol=1e-5)


def test_greedy_takes_the_likeliest_token(reference, scripted):
    script = scripted(30, seed=5)
    tokens, scores = script.run(GreedySearch())
    assert tokens.shape[:2] == scores.shape == (30, 1)
    lengths = set()
    for sentence in range(30):
        expected = reference.beam_search(script.log_probs(sentence, reference), LIMIT, IDS, 0.0, "gnmt", 1)
        assert_found(tokens[sentence], scores[sentence], expected)
        lengths.add(len(expected[0][1]))
    assert lengths == {1, 2, 3, 4}


def test_greedy_forces_the_end_at_each_sentences_limit(scripted):
    script = scripted(3, seed=6, eos_bonus=-30.0)
    tokens, scores = script.run(GreedySearch(), limits=[1, 3, 2])
    assert [len(without_padding(row)) for row in tokens[:, 0]] == [1, 3, 2]
    assert (scores < -20).all()


@pytest.mark.portable
def test_n_best_is_in_order_and_starts_with_the_best(scripted):
    script = scripted(10, seed=7)
    four, one = (script.run(BeamSearch(beam_size=4, n_best=n, length_penalty=0.6)) for n in (4, 1))
    assert (np.diff(four[1], axis=-1) <= 0).all()
    assert [without_padding(row[0]) for row in four[0]] == [without_padding(row[0]) for row in one[0]]
    np.testing.assert_allclose(four[1][:, :1], one[1], atol=1e-6)


def test_a_batch_gives_what_each_sentence_gives_alone(scripted):
    script = scripted(6, seed=8)
    tokens, scores = script.run(BeamSearch(n_best=3))
    table = script.table
    for sentence in range(6):
        script.table, script.sentences = table[sentence : sentence + 1], 1
        alone_tokens, alone_scores = script.run(BeamSearch(n_best=3))
        np.testing.assert_allclose(alone_scores[0], scores[sentence], atol=1e-5)
        pairs = zip(alone_tokens[0], tokens[sentence], strict=True)
        assert all(without_padding(one) == without_padding(other) for one, other in pairs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("strategy", [GreedySearch(), BeamSearch(length_penalty=0.0)], ids=repr)
@pytest.mark.portable
def test_scores_are_float32_sums_of_half_precision_logits(dtype, strategy, reference, scripted):
    script = scripted(5, seed=9)
    script.table = ops.cast(script.table, dtype)
    tokens, scores = script.run(strategy)
    script.table = to_numpy(ops.cast(script.table, "float32"))
    assert scores.dtype == np.float32
    for sentence, row in enumerate(tokens[:, 0]):
        log_probs, hypothesis = script.log_probs(sentence, reference), without_padding(row)
        expected = sum(log_probs(hypothesis[:i])[token] for i, token in enumerate(hypothesis))
        assert scores[sentence, 0] == pytest.approx(expected, abs=1e-5)


def test_special_ids_are_not_fixed(reference, scripted):
    script, ids = scripted(1, seed=10), SpecialIds(pad=3, bos=1, eos=0)
    strategy = BeamSearch(beam_size=EVERYTHING, length_penalty=0.6)
    tokens, scores, _ = script.search(strategy, SearchInputs(ops.convert_to_tensor([3])), LIMIT, ids)
    score, hypothesis = reference.all_hypotheses(script.log_probs(0, reference), 3, ids, 0.6, "gnmt")[0]
    assert float(scores[0, 0]) == pytest.approx(score, abs=1e-4)
    padded = to_numpy(tokens)[0, 0].tolist()
    assert tuple(padded[: len(hypothesis)]) == hypothesis
    assert set(padded[len(hypothesis) :]) <= {3}


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize(("kind", "alpha"), PENALTIES)
def test_length_penalty_is_the_formula(kind, alpha, length, reference):
    assert float(length_penalty(length, alpha, kind)) == pytest.approx(reference.penalty(length, alpha, kind))


def test_length_penalty_never_falls():
    for kind, alpha in itertools.product(("gnmt", "length"), (0.0, 0.6, 1.0)):
        assert (np.diff(to_numpy(length_penalty(np.arange(1, 60), alpha, kind))) >= 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, "`beam_size`.*Received: beam_size=0"),
        ({"n_best": 0}, "`n_best`.*Received: n_best=0"),
        ({"n_best": 5}, "`n_best`.*Received: n_best=5, beam_size=4"),
        ({"length_penalty": -0.1}, "`length_penalty`.*Received: length_penalty=-0.1"),
        ({"length_penalty": float("nan")}, "`length_penalty`.*Received: length_penalty=nan"),
        ({"extra_length": -1}, "`extra_length`.*Received: extra_length=-1"),
        ({"length_penalty_kind": "wu"}, "`length_penalty_kind` .*gnmt.*Received: length_penalty_kind='wu'"),
    ],
)
def test_bad_arguments_of_beam_search_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BeamSearch(**arguments)


def test_bad_arguments_of_greedy_search_are_refused():
    with pytest.raises(ValueError, match="`extra_length`.*Received: extra_length=-1"):
        GreedySearch(extra_length=-1)


def test_strategies_are_values():
    assert BeamSearch() == BeamSearch(beam_size=4, length_penalty=0.6, length_penalty_kind="gnmt", extra_length=50)
    assert hash(BeamSearch()) == hash(BeamSearch()) and GreedySearch() == GreedySearch(extra_length=50)
