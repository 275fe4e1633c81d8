"""Minimal lengths, repeated n-grams, prefixes and token scores, against all hypotheses that there are."""

import keras
import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, SearchInputs, SpecialIds
from keras_transformer.decoding.search import common_suffixes
from keras_transformer.decoding.searcher import without_repeats

ops = keras.ops
to_numpy = ops.convert_to_numpy
LIMIT, PAD, EOS = 4, 0, 3
IDS = SpecialIds(pad=PAD, bos=2, eos=EOS)
EVERYTHING = 40
BEAM = {"beam_size": EVERYTHING, "n_best": EVERYTHING, "length_penalty": 0.6}
OPTIONS = {
    "minimal length": {"min_length": 2},
    "minimal length beyond the limit": {"min_length": 9},
    "no token twice": {"no_repeat_ngram_size": 1},
    "no pair twice": {"no_repeat_ngram_size": 2},
    "both": {"min_length": 3, "no_repeat_ngram_size": 1},
    "n-grams longer than hypotheses": {"no_repeat_ngram_size": 7},
    "n-grams of any length": {"no_repeat_ngram_size": 4000},
}


def ids_of(tokens):
    tokens = tokens.tolist()
    return tuple(tokens[: tokens.index(EOS) + 1])


def repeats(tokens, size):
    ngrams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


def allowed(hypotheses, limit, min_length=0, no_repeat_ngram_size=0, prefix=()):
    """Those of `(score, tokens)` that the options allow."""
    return [
        (score, tokens)
        for score, tokens in hypotheses
        if len(tokens) - 1 >= min(min_length, limit - 1)
        and not (no_repeat_ngram_size and repeats(tokens, no_repeat_ngram_size))
        and tokens[: len(prefix)] == prefix
    ]


def assert_all_found(tokens, scores, expected):
    exists = scores > -1e8
    assert [ids_of(row) for row in tokens[exists]] == [hypothesis for _, hypothesis in expected]
    np.testing.assert_allclose(scores[exists], [score for score, _ in expected], atol=1e-4)
    assert not tokens[~exists].any()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_beam_holds_what_the_options_allow_and_nothing_else(scripted, reference, options):
    script, limits = scripted(3), [LIMIT, 3, LIMIT]
    tokens, scores = script.run(BeamSearch(**BEAM, **options), limits=limits)
    for sentence, limit in enumerate(limits):
        everything = reference.all_hypotheses(script.log_probs(sentence, reference), limit, IDS, 0.6, "gnmt")
        assert_all_found(tokens[sentence], scores[sentence], allowed(everything, limit, **options))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.portable
def test_greedy_search_takes_the_likeliest_that_is_allowed(scripted, reference, options):
    script = scripted(20, seed=1, eos_bonus=1.0)
    tokens, scores = script.run(GreedySearch(**options))
    for sentence in range(20):
        log_probs, beginning, total = script.log_probs(sentence, reference), (), 0.0
        while beginning[-1:] != (EOS,):
            following = log_probs(beginning)
            choices = [EOS] if len(beginning) + 1 == LIMIT else [1, 3, 4, 5]
            nexts = [(*beginning, token) for token in choices]
            is_early = [n[-1] == EOS and len(n) - 1 < min(options.get("min_length", 0), LIMIT - 1) for n in nexts]
            size = options.get("no_repeat_ngram_size")
            nexts = [
                n for n, early in zip(nexts, is_early, strict=True) if not early and not (size and repeats(n, size))
            ]
            beginning = max(nexts, key=lambda n: following[n[-1]])
            total += following[beginning[-1]]
        assert ids_of(tokens[sentence, 0]) == beginning
        assert scores[sentence, 0] == pytest.approx(total, abs=1e-4)
    plain = script.run(GreedySearch())[0]
    changed = [ids_of(a) != ids_of(b) for a, b in zip(plain[:, 0], tokens[:, 0], strict=True)]
    assert any(changed) or options.get("no_repeat_ngram_size", 0) > 1  # Few tokens repeat no pair.


@pytest.mark.parametrize("strategy", [GreedySearch, BeamSearch, Sampling])
@pytest.mark.portable
def test_a_hypothesis_ends_when_all_other_tokens_are_forbidden(scripted, strategy):
    """Of three tokens each comes once; then the end does, however early."""
    script = scripted(8, seed=2, limit=7)
    options = {"no_repeat_ngram_size": 1, "min_length": 6}
    noise = {"noise": ops.convert_to_tensor(Sampling(seed=1).noise(8, 7))} if strategy is Sampling else {}
    tokens, scores = script.run(strategy(**options), limits=[7] * 8, max_length=7, **noise)
    assert {len(ids_of(row)) for row in tokens[:, 0]} == {4}
    assert (scores > -100).all()


@pytest.mark.parametrize("extra", [{}, {"min_length": 3}, {"no_repeat_ngram_size": 1}], ids=str)
@pytest.mark.portable
def test_each_sentence_has_its_own_prefix(scripted, reference, extra):
    script, prefixes = scripted(4, seed=3), [(4, 5), (1,), (), (5, 1, 4)]
    prefix = np.array([[*row, *[PAD] * (3 - len(row))] for row in prefixes], "int32")
    tokens, scores = script.run(BeamSearch(**BEAM, **extra), prefix=ops.convert_to_tensor(prefix))
    for sentence, row in enumerate(prefixes):
        everything = reference.all_hypotheses(script.log_probs(sentence, reference), LIMIT, IDS, 0.6, "gnmt")
        assert_all_found(tokens[sentence], scores[sentence], allowed(everything, LIMIT, prefix=row, **extra))


def test_a_prefix_may_repeat_itself(scripted):
    prefix = ops.convert_to_tensor(np.array([[4, 4, 4]], "int32"))
    tokens, _ = scripted(1).run(GreedySearch(no_repeat_ngram_size=1), prefix=prefix)
    assert ids_of(tokens[0, 0]) == (4, 4, 4, EOS)


@pytest.mark.parametrize(
    "strategy",
    [
        GreedySearch(token_scores=True),
        BeamSearch(beam_size=1, token_scores=True, length_penalty=0.0),
        BeamSearch(beam_size=5, n_best=5, token_scores=True, length_penalty=0.0),
        Sampling(token_scores=True, n_samples=2, temperature=3.0),
    ],
    ids=lambda s: f"{type(s).__name__} {s.beam_size}",
)
@pytest.mark.portable
def test_token_scores_are_the_scripts_and_sum_to_the_score(scripted, reference, strategy):
    script = scripted(9, seed=4, eos_bonus=1.0)
    noise = {"noise": ops.convert_to_tensor(Sampling(seed=1, n_samples=2).noise(9, LIMIT))}
    tokens, scores, token_scores = script.run(strategy, **(noise if isinstance(strategy, Sampling) else {}))
    assert token_scores.shape == tokens.shape and token_scores.dtype == np.float32
    np.testing.assert_allclose(token_scores.sum(axis=2), np.where(scores > -1e8, scores, 0), atol=1e-4)
    assert not token_scores[tokens == PAD].any()
    for sentence, rank in np.argwhere(scores > -1e8):
        log_probs, hypothesis = script.log_probs(sentence, reference), ids_of(tokens[sentence, rank])
        expected = [log_probs(hypothesis[:i])[token] for i, token in enumerate(hypothesis)]
        np.testing.assert_allclose(token_scores[sentence, rank, : len(hypothesis)], expected, atol=1e-5)


@pytest.mark.portable
def test_token_scores_change_nothing_else(scripted):
    script = scripted(9, seed=5)
    plain = script.run(BeamSearch(n_best=4))
    for one, other in zip(plain, script.run(BeamSearch(n_best=4, token_scores=True)), strict=False):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("kind", "alpha"), [("gnmt", 0.6), ("length", 1.0)])
def test_a_beam_of_one_is_greedy_search_with_the_penalty_in_its_score(scripted, reference, kind, alpha):
    script = scripted(20, seed=6, eos_bonus=1.0)
    strategy = BeamSearch(beam_size=1, length_penalty=alpha, length_penalty_kind=kind)
    (tokens, scores), greedy = script.run(strategy), script.run(GreedySearch())
    np.testing.assert_array_equal(tokens, greedy[0])
    for sentence in range(20):
        log_probs = script.log_probs(sentence, reference)
        ((expected, hypothesis),) = reference.beam_search(log_probs, LIMIT, IDS, alpha, kind, 1)
        assert ids_of(tokens[sentence, 0]) == hypothesis
        assert scores[sentence, 0] == pytest.approx(expected, abs=1e-4)


def test_a_beam_of_one_reorders_no_caches(scripted, monkeypatch):
    def refuse(*args):
        raise AssertionError("a cache was reordered")

    monkeypatch.setattr("keras_transformer.decoding.beams.Beams._reordered", refuse)
    scripted(3).run(BeamSearch(beam_size=1))
    with pytest.raises(AssertionError, match="a cache was reordered"):
        scripted(3).run(BeamSearch(beam_size=2))


@pytest.mark.parametrize("name", ["min_length", "no_repeat_ngram_size", "extra_length"])
@pytest.mark.parametrize("strategy", [GreedySearch, BeamSearch, Sampling])
def test_bad_options_are_refused(strategy, name):
    with pytest.raises(ValueError, match=f"`{name}`.*Received: {name}=-1"):
        strategy(**{name: -1})


def test_the_last_tokens_of_repeated_ngrams_and_padding_are_barred():
    tokens = ops.convert_to_tensor(np.array([[5, 6, 5, 4, 4, 4], [5, 6, 7, 4, 4, 4]], "int32"))
    suffixes = ops.convert_to_tensor(np.array([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], "int32"))
    allowed = to_numpy(without_repeats(ops.zeros((2, 8)), tokens, suffixes, 3, 2, pad=4)) > -1
    assert [np.flatnonzero(~row).tolist() for row in allowed] == [[4, 6], [4]]


def test_common_suffixes_are_those_of_all_beginnings():
    tokens = np.random.default_rng(1).integers(5, 7, (7, 12)).astype("int32")
    suffixes = ops.zeros(tokens.shape, "int32")
    for step in range(12):
        suffixes = common_suffixes(suffixes, ops.convert_to_tensor(tokens), ops.convert_to_tensor(tokens[:, step]))
        for row, found in zip(tokens.tolist(), to_numpy(suffixes), strict=True):
            end = row[: step + 1]
            expected = [max(n for n in range(i + 1) if n == 0 or end[i - n : i] == end[-n:]) for i in range(step + 1)]
            assert found[: step + 1].tolist() == expected


@pytest.mark.slow
def test_the_graph_does_not_grow_with_the_ngrams(scripted, tensorflow):
    sentences, sizes = SearchInputs(np.array([LIMIT, LIMIT], "int32")), []
    for size in (2, 1000):
        strategy = BeamSearch(no_repeat_ngram_size=size)
        traced = tensorflow.function(lambda strategy=strategy: scripted(2).search(strategy, sentences, LIMIT, IDS))
        graph = traced.get_concrete_function().graph.as_graph_def()
        sizes.append(sum(len(function.node_def) for function in graph.library.function) + len(graph.node))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BeamSearch(beam_size=2.0), "`beam_size` must be an integer. Received: beam_size=2.0"),
        (lambda: BeamSearch(n_best="1"), "`n_best` must be an integer. Received: n_best='1'"),
        (lambda: GreedySearch(extra_length=None), "`extra_length` must be an integer. Received: extra_length=None"),
        (lambda: Sampling(seed=1.5), "`seed` must be an integer. Received: seed=1.5"),
    ],
)
def test_counts_are_integers(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_seeds_may_be_an_array():
    assert Sampling(seed=np.array([1, 2])) == Sampling(seed=[1, 2])
