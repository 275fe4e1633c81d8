import dataclasses

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.verify.equality import Agreement, compare, random_source_batches
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.export.verify.quality import compare_likelihood

SEARCH = BeamSearch(beam_size=2, extra_length=3, n_best=2)


@pytest.fixture(scope="module")
def model():
    """A model with weights large enough that hypotheses depend on the source."""
    keras.utils.set_random_seed(5)
    model = Transformer(TransformerConfig(vocab_size=31, num_layers=1, d_model=8, num_heads=2, d_ff=12))
    rng = np.random.default_rng(5)
    model.set_weights([weight + rng.normal(scale=0.4, size=weight.shape) for weight in model.get_weights()])
    return model


@pytest.fixture(scope="module")
def batches():
    return random_source_batches(31, longest=5)[:10]


class Program:
    """Returns the model's tokens and scores, modified by `change(tokens, scores)`."""

    def __init__(self, model, change):
        self.model = model
        self.change = change

    def search(self, source):
        tokens, scores = (part.copy() for part in self.model.generate(source, SEARCH)[:2])
        return self.change(tokens, scores)


def without_odd(logits, tokens, step):
    """Forbids odd tokens, and makes others likelier with each step."""
    odd = np.arange(31) % 2 == 1
    biased = logits + 0.2 * keras.ops.cast(step, "float32") * (np.arange(31) == 8)
    return keras.ops.where(odd, -np.inf, biased)


SEARCHES = {
    "plain": SEARCH,
    "penalty": dataclasses.replace(SEARCH, repetition_penalty=1.8),
    "processor": dataclasses.replace(SEARCH, repetition_penalty=1.8, logits_processor=without_odd),
}


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_teacher_forced_scores_are_the_searches(model, batches, search):
    for source in batches:
        tokens, scores, _ = model.generate(source, search)
        for best in range(2):
            forced = KerasSearch(model, search).forced_scores(source, tokens[:, best])
            np.testing.assert_allclose(forced, scores[:, best], atol=1e-4)


def test_the_same_program_agrees(model, batches):
    agreement = compare(KerasSearch(model, SEARCH), Program(model, lambda tokens, scores: (tokens, scores)), batches)
    sentences = sum(map(len, batches))
    assert agreement == Agreement(sentences, sentences, 0, 0.0) and agreement.passed


@pytest.mark.parametrize("compare", [compare, compare_likelihood])
def test_the_model_searches_before_the_program(batches, compare):
    """Many programs are loaded by their first search, and the searches of Keras need much memory, too."""
    calls = []

    class Logged:
        pad_id = 0
        candidates = staticmethod(lambda source: None)
        forced_scores = staticmethod(lambda source, tokens, candidates: np.ones(len(tokens)))
        log_probs = staticmethod(lambda source, tokens, candidates: np.ones(tokens.shape))

        def __init__(self, name):
            self.name = name

        def search(self, source):
            calls.append(self.name)
            return np.full((len(source), 1, 2), 3), np.ones((len(source), 1))

    assert compare(Logged("model"), Logged("program"), batches[:2]).equal == 2
    assert calls == ["model", "model", "program", "program"]


def test_padding_makes_no_difference(model, batches):
    program = Program(model, lambda tokens, scores: (np.pad(tokens, [(0, 0), (0, 0), (0, 3)]), scores))
    assert compare(KerasSearch(model, SEARCH), program, batches).passed


def test_other_scores_fail(model, batches):
    agreement = compare(
        KerasSearch(model, SEARCH), Program(model, lambda tokens, scores: (tokens, scores + 2e-3)), batches
    )
    assert agreement.equal == agreement.sentences and not agreement.passed
    assert agreement.largest_score_difference == pytest.approx(2e-3, rel=1e-3)


def with_another_second(model, score_error):
    """A program with another second hypothesis in the first batch: the first with a different last token."""

    def search(source):
        tokens, scores = (part.copy() for part in model.generate(source, SEARCH)[:2])
        if len(source) == 1 and not done:
            done.append(True)
            end = int((tokens[0, 0] != 0).sum()) - 1
            tokens[0, 1] = tokens[0, 0]
            tokens[0, 1, end - 1] = next(i for i in range(4, 31) if i not in tokens[0, :, end - 1])
            scores[0, 1] = KerasSearch(model, SEARCH).forced_scores(source, tokens[:, 1])[0] + score_error
        return tokens, scores

    done, program = [], Program(model, None)
    program.search = search
    return program


def test_another_hypothesis_below_the_best_must_have_its_score(model, batches):
    sound = compare(KerasSearch(model, SEARCH), with_another_second(model, 0.0), batches)
    assert (sound.equal, sound.ties, sound.other_ranks) == (sound.sentences, 0, 1)
    assert sound.largest_score_difference < 1e-4 and "1 with different lower hypotheses" in str(sound)
    unsound = compare(KerasSearch(model, SEARCH), with_another_second(model, 2e-3), batches)
    assert unsound.other_ranks == 1 and unsound.largest_score_difference == pytest.approx(2e-3, rel=0.1)


def test_a_score_that_is_no_number_fails(model, batches):
    assert not compare(
        KerasSearch(model, SEARCH), Program(model, lambda tokens, scores: (tokens, scores * np.nan)), batches
    ).passed


def test_one_other_token_fails(model, batches):
    def change(tokens, scores):
        tokens[0, 0, 0] = 4 if tokens[0, 0, 0] != 4 else 5
        return tokens, scores

    agreement = compare(KerasSearch(model, SEARCH), Program(model, change), batches[:1])
    assert (agreement.sentences, agreement.equal) == (1, 0) and not agreement.passed


def test_perturbed_weights_fail(model, batches):
    weights = model.get_weights()
    model.set_weights([weight * 1.3 for weight in weights])
    answers = iter([model.generate(source, SEARCH)[:2] for source in batches])
    model.set_weights(weights)
    program = Program(None, None)
    program.search = lambda source: next(answers)
    assert not compare(KerasSearch(model, SEARCH), program, batches).passed


def test_other_tokens_of_the_same_score_are_a_tie(model):
    """With zero weights all tokens have the same probability, so scores depend on the length only."""
    blank = Transformer(model.config)
    blank.set_weights([np.zeros_like(weight) for weight in blank.get_weights()])

    class Script:
        generate = staticmethod(lambda source, strategy, **options: (np.array([[[5, 6, 3]]]), np.array([[-1.0]])))
        token_log_probs, special_ids = staticmethod(blank.token_log_probs), blank.special_ids

    for answer, ties in (([7, 8, 3], 1), ([7, 3, 0], 0)):
        program = Program(None, None)
        program.search = lambda source, answer=answer: (np.array([[answer]]), np.array([[-1.0]]))
        agreement = compare(KerasSearch(Script(), SEARCH), program, [np.array([[9, 3]], "int32")])
        assert (agreement.sentences, agreement.equal, agreement.ties) == (1, 0, ties)
        assert not agreement.passed  # No sentence is equal.


def test_few_sentences_may_have_other_lower_ranks():
    assert Agreement(40, 40, 0, 0.0, other_ranks=1).passed
    assert not Agreement(40, 40, 0, 0.0, other_ranks=2).passed
    assert Agreement(1000, 1000, 0, 0.0, other_ranks=20).passed
    assert not Agreement(1000, 1000, 0, 0.0, other_ranks=21).passed


@pytest.mark.parametrize(
    ("sentences", "equal", "ties", "difference", "passed"),
    [
        (40, 39, 1, 0.0, True),
        (40, 38, 2, 0.0, False),
        (1000, 1000, 0, 9e-4, True),
        (1000, 1000, 0, 1e-3, False),
        (1000, 995, 5, 0.0, True),
        (1000, 994, 6, 0.0, False),
        (1000, 999, 0, 0.0, False),
        (224, 223, 1, 0.0, True),
        (224, 222, 2, 0.0, False),
    ],
)
def test_few_ties_and_small_differences_pass(sentences, equal, ties, difference, passed):
    assert Agreement(sentences, equal, ties, difference).passed is passed


def test_a_large_model_has_no_large_batches():
    assert [len(batch) for batch in random_source_batches(50, num_parameters=10**8 + 1)] == [1] * 4 + [3] * 4


def test_random_source_batches_vary_in_size_and_length():
    batches = random_source_batches(50)
    assert [len(batch) for batch in batches] == [1] * 8 + [7] * 8 + [32] * 5
    assert len({batch.shape[1] for batch in batches}) > 5
    for batch in batches:
        assert batch.dtype == np.int32 and (batch != 0).any(axis=0).all()
        for row in batch:
            ids = np.trim_zeros(row, "b")
            assert 2 <= len(ids) <= 31 and ids[-1] == 3 and (ids[:-1] > 3).all() and (ids < 50).all()
    for one, other in zip(batches, random_source_batches(50), strict=True):
        np.testing.assert_array_equal(one, other)
