"""The repetition penalty and processors of logits, against formulas in NumPy and all hypotheses that there are."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling, SearchInputs, Shortlist, SpecialIds
from keras_transformer.decoding.logits import processed, with_repetition_penalty

pytestmark = pytest.mark.portable

ops = keras.ops
to_numpy = ops.convert_to_numpy
LIMIT, PAD, EOS, BANNED = 4, 0, 3, 4
IDS = SpecialIds(pad=PAD, bos=2, eos=EOS)
EVERYTHING = 40
BEAM = {"beam_size": EVERYTHING, "n_best": EVERYTHING, "length_penalty": 0.6}
SAMPLING = Sampling(top_k=1)


def with_bias(logits, tokens, step):
    """Makes token 5 likelier, the more so the later."""
    return logits + ops.cast(step + 1, "float32") * ops.one_hot(5, 6)


def without_banned(logits, tokens, step):
    """Forbids a token, and the end after the first token."""
    is_banned = np.arange(6) == BANNED
    is_end = ops.logical_and(np.arange(6) == EOS, step == 1)
    return ops.where(ops.logical_or(is_banned, is_end), -np.inf, logits)


def with_first(logits, tokens, step):
    """Allows only token 5 first, and after that the tokens that are not the newest."""
    newest = ops.where(step > 0, ops.take(tokens, ops.maximum(step - 1, 0), axis=1), -1)
    is_newest = ops.expand_dims(newest, 1) == np.arange(6)
    is_allowed = ops.where(step == 0, np.arange(6) == 5, ops.logical_not(is_newest))
    return ops.where(is_allowed, logits, -np.inf)


def is_without_banned(tokens):
    return BANNED not in tokens and tokens[1:2] != (EOS,)


def is_with_first(tokens):
    return tokens[0] == 5 and all(one != other for one, other in zip(tokens, tokens[1:], strict=False))


def anything(tokens):
    return True


#: Options -> the bias of token 5 by step, and whether a hypothesis is allowed.
CASES = {
    "penalty": ({"repetition_penalty": 1.7}, 0, anything),
    "penalty below 1": ({"repetition_penalty": 0.4}, 0, anything),
    "bias": ({"logits_processor": with_bias}, 1, anything),
    "both": ({"repetition_penalty": 1.7, "logits_processor": with_bias}, 1, anything),
    "ban": ({"logits_processor": without_banned}, 0, is_without_banned),
    "by step and tokens": ({"logits_processor": with_first, "repetition_penalty": 1.7}, 0, is_with_first),
}


def log_probs_of(script, sentence, reference, penalty=1.0, bias=0):
    """The log probabilities after a beginning, by the definitions."""
    logits_of = script.log_probs(sentence, SimpleNamespace(log_softmax=np.array))

    def log_probs(beginning):
        logits = logits_of(beginning).astype("float64")
        for token in {*beginning}:
            logits[token] *= 1 / penalty if logits[token] > 0 else penalty
        logits[5] += bias * (len(beginning) + 1)
        return reference.log_softmax(logits)

    return log_probs


def ids_of(tokens):
    tokens = tokens.tolist()
    return tuple(tokens[: tokens.index(EOS) + 1])


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3])
@pytest.mark.parametrize("step", [0, 3, 5])
def test_the_penalty_is_the_formula(step, penalty):
    rng = np.random.default_rng(step)
    logits, tokens = rng.normal(size=(3, 11)).astype("float32"), rng.integers(1, 11, (3, 7)).astype("int32")
    tokens[:, step:] = PAD
    expected = logits.copy()
    for row in range(3):
        for token in {*tokens[row, :step].tolist()}:
            expected[row, token] *= 1 / penalty if logits[row, token] > 0 else penalty
    found = with_repetition_penalty(*map(ops.convert_to_tensor, (logits, tokens, np.int32(step))), penalty)
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-6)


@pytest.mark.parametrize(("options", "bias", "is_allowed"), CASES.values(), ids=CASES)
def test_the_beam_holds_what_is_allowed_with_the_processed_scores(scripted, reference, options, bias, is_allowed):
    script, limits = scripted(3), [LIMIT, 3, LIMIT]
    tokens, scores = script.run(BeamSearch(**BEAM, **options), limits=limits)
    for sentence, limit in enumerate(limits):
        log_probs = log_probs_of(script, sentence, reference, options.get("repetition_penalty", 1.0), bias)
        everything = reference.all_hypotheses(log_probs, limit, IDS, 0.6, "gnmt")
        expected = [(score, hypothesis) for score, hypothesis in everything if is_allowed(hypothesis)]
        exists = scores[sentence] > -1e8
        assert [ids_of(row) for row in tokens[sentence][exists]] == [hypothesis for _, hypothesis in expected]
        np.testing.assert_allclose(scores[sentence][exists], [score for score, _ in expected], atol=1e-4)


@pytest.mark.parametrize(("options", "bias", "is_allowed"), CASES.values(), ids=CASES)
def test_greedy_search_one_beam_and_one_candidate_are_equal(scripted, reference, options, bias, is_allowed):
    script = scripted(7, seed=2, eos_bonus=-2.0)
    tokens, scores = script.run(GreedySearch(**options))
    noise = {"noise": ops.convert_to_tensor(SAMPLING.noise(7, LIMIT))}
    for strategy, given in ((BeamSearch, {}), (Sampling, noise)):
        arguments = {"top_k": 1} if strategy is Sampling else {"beam_size": 1, "length_penalty": 0.0}
        other_tokens, other_scores = script.run(strategy(**arguments, **options), **given)
        np.testing.assert_array_equal(other_tokens, tokens)
        np.testing.assert_allclose(other_scores, scores, atol=1e-5)
    for sentence in range(7):
        log_probs = log_probs_of(script, sentence, reference, options.get("repetition_penalty", 1.0), bias)
        hypothesis = ids_of(tokens[sentence, 0])
        assert is_allowed(hypothesis)
        total = sum(log_probs(hypothesis[:i])[token] for i, token in enumerate(hypothesis))
        assert scores[sentence, 0] == pytest.approx(total, abs=1e-4)
    plain = script.run(GreedySearch())[0]
    assert not np.array_equal(plain, tokens)


def test_the_prefix_counts_as_generated(scripted, reference):
    script, prefix = scripted(7, seed=2, eos_bonus=-3.0), (4, 4)
    given = {"prefix": ops.convert_to_tensor(np.array([prefix] * 7, "int32"))}
    tokens, scores = script.run(BeamSearch(**BEAM, repetition_penalty=3.0), **given)
    for sentence in range(7):
        everything = reference.all_hypotheses(log_probs_of(script, sentence, reference, 3.0), LIMIT, IDS, 0.6, "gnmt")
        expected = [(score, hypothesis) for score, hypothesis in everything if hypothesis[:2] == prefix]
        exists = scores[sentence] > -1e8
        assert [ids_of(row) for row in tokens[sentence][exists]] == [hypothesis for _, hypothesis in expected]
        np.testing.assert_allclose(scores[sentence][exists], [score for score, _ in expected], atol=1e-4)


@pytest.mark.parametrize("strategy", [GreedySearch, BeamSearch, Sampling])
@pytest.mark.parametrize("banned", [[EOS], range(6)], ids=["end", "everything"])
def test_forced_tokens_have_the_score_before_the_ban(scripted, strategy, banned):
    """The end at the limit, the end where everything is forbidden, and a prefix."""

    def process(logits, tokens, step):
        return ops.where(np.isin(np.arange(6), [*banned]), -np.inf, logits)

    given = {"prefix": ops.convert_to_tensor(np.array([[5]] * 4, "int32"))}
    if strategy is Sampling:
        given["noise"] = ops.convert_to_tensor(SAMPLING.noise(4, LIMIT))
    tokens, scores = scripted(4, seed=3).run(strategy(logits_processor=process), **given)
    assert {len(ids_of(row)) for row in tokens[:, 0]} == {2 if len(banned) > 1 else LIMIT}
    assert (tokens[:, 0, 0] == 5).all() and (scores[:, 0] > -100).all()


def test_a_forbidden_token_keeps_its_logit():
    logits, tokens = ops.convert_to_tensor([[1.0, 2.0, 3.0]]), ops.zeros((1, 4), "int32")
    strategy = GreedySearch(logits_processor=lambda logits, tokens, step: ops.where(logits > 2, -np.inf, 2 * logits))
    found, is_allowed = processed(strategy, logits, tokens, 0)
    assert to_numpy(found).tolist() == [[2.0, 4.0, 3.0]]
    assert to_numpy(is_allowed).tolist() == [[True, True, False]]


@pytest.mark.parametrize("strategy", [GreedySearch, BeamSearch, Sampling])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repetition_penalty": 0.0}, "`repetition_penalty` must be positive.*Received: repetition_penalty=0.0"),
        ({"logits_processor": "ban"}, "`logits_processor` must be callable. Received: logits_processor='ban'"),
    ],
)
def test_bad_options_are_refused(strategy, options, message):
    with pytest.raises(ValueError, match=message):
        strategy(**options)


@pytest.mark.parametrize(
    ("process", "message"),
    [
        (lambda logits, tokens, step: None, "`logits_processor` must return .*vocab_size=6.*Received: None"),
        (lambda logits, tokens, step: logits[:, 1:], r"`logits_processor` must return .*Received: shape=\(\w+, 5\)"),
    ],
)
def test_a_processor_that_returns_something_else_is_refused(scripted, process, message):
    with pytest.raises(ValueError, match=message):
        scripted(2).run(GreedySearch(logits_processor=process))


def test_a_shortlist_and_a_processor_are_refused():
    config = SimpleNamespace(source_vocabulary=300, vocab_size=300, pad_id=0, bos_id=2, eos_id=3)
    shortlist = Shortlist(np.zeros((300, 1), int), np.arange(128), vocab_size=300)
    with pytest.raises(ValueError, match="shortlist.*`logits_processor`.*Received: logits_processor=<function"):
        shortlist.check(config, GreedySearch(logits_processor=with_bias))


@pytest.mark.parametrize("strategy", [GreedySearch, BeamSearch, Sampling])
def test_the_options_are_json_and_name_the_processor(strategy):
    plain = strategy(repetition_penalty=1.5)
    assert strategy(**json.loads(json.dumps(plain.options))) == plain
    named = strategy(repetition_penalty=1.5, logits_processor=with_bias)
    assert named.options == {**plain.options, "logits_processor": "with_bias"}
    assert len({plain, named, strategy(repetition_penalty=1.5, logits_processor=with_first)}) == 3


@pytest.mark.slow
def test_a_penalty_of_1_adds_nothing_to_the_graph(scripted, tensorflow):
    sentences, sizes = SearchInputs(np.array([LIMIT, LIMIT], "int32")), []
    for options in ({}, {"repetition_penalty": 1.0}, {"repetition_penalty": 1.5}):
        strategy = BeamSearch(**options)
        traced = tensorflow.function(lambda strategy=strategy: scripted(2).search(strategy, sentences, LIMIT, IDS))
        graph = traced.get_concrete_function().graph.as_graph_def()
        sizes.append(sum(len(function.node_def) for function in graph.library.function) + len(graph.node))
    assert sizes[0] == sizes[1] < sizes[2]
