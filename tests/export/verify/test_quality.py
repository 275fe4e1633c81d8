import re

import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.verify.equality import random_source_batches
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.export.verify.quality import compare_bleu, compare_likelihood
from keras_transformer.translate.translation import Translation

SEARCH = BeamSearch(beam_size=2, extra_length=6)


@pytest.fixture(scope="module")
def model():
    return Transformer(TransformerConfig(vocab_size=60, num_layers=1, d_model=12, num_heads=2, d_ff=20))


@pytest.fixture(scope="module")
def batches():
    return random_source_batches(60, longest=7)[7:10]


class Program:
    """Returns the model's tokens and scores after a change."""

    def __init__(self, model, change=lambda tokens, scores: (tokens, scores)):
        self.model, self.change = model, change

    def search(self, source):
        return self.change(*self.model.generate(source, SEARCH)[:2])


@pytest.mark.slow
def test_the_model_itself_passes(model, batches):
    verdict = compare_likelihood(KerasSearch(model, SEARCH), Program(model), batches)
    assert verdict.passed and verdict.equal == verdict.sentences == sum(map(len, batches))
    assert verdict.loss < 1e-5 and verdict.score_error < 1e-4
    assert "loss 0.0000 nats" in str(verdict)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "change",
    [
        lambda tokens, scores: (np.full((len(tokens), 1, 1), 3), scores),
        lambda tokens, scores: (np.where(tokens > 3, 4 + (tokens + 17) % 56, tokens), scores),
        lambda tokens, scores: (tokens, 0.5 * scores),
        lambda tokens, scores: (tokens, np.nan * scores),
    ],
    ids=["always the end", "other tokens", "wrong scores", "no scores"],
)
def test_worse_translations_fail(model, batches, change):
    assert not compare_likelihood(KerasSearch(model, SEARCH), Program(model, change), batches).passed


class Confident:
    """A search whose hypotheses, of 4 tokens, have probabilities of nearly 1."""

    pad_id = 0

    def __init__(self, score=-4e-4):
        self.score = score

    def search(self, source):
        return np.tile([5, 6, 7, 3], (len(source), 1, 1)), np.full((len(source), 1), self.score)

    def candidates(self, source):
        return None

    def log_probs(self, source, rows, candidates):
        return np.full(rows.shape, -1e-4)

    def forced_scores(self, source, rows, candidates):
        return self.log_probs(source, rows, candidates).sum(axis=1)


@pytest.mark.parametrize(("score", "passed"), [(-7e-4, True), (-0.07, True), (-0.09, False), (0.2, False)])
def test_scores_of_a_confident_model_differ_by_few_nats_per_token(score, passed):
    found = compare_likelihood(Confident(), Confident(score), [np.ones((3, 4), "int32")])
    assert (found.equal, found.loss) == (3, 0.0) and found.passed is passed


def translations(*texts):
    return [Translation(text, 0.0) for text in texts]


def test_bleu_may_fall_a_little():
    reference = [f"the {word} dog runs over a green field {i}" for i, word in enumerate(["big", "old", "red"] * 40)]
    worse = [line if i else "a cat" for i, line in enumerate(reference)]
    much_worse = [line if i > 9 else "a cat" for i, line in enumerate(reference)]
    expected = translations(*reference)
    assert compare_bleu(expected, translations(*reference), reference).passed
    assert compare_bleu(translations(*worse), expected, reference).passed  # A higher BLEU passes.
    failed = compare_bleu(expected, translations(*much_worse), reference)
    assert not failed.passed and failed.keras_bleu == pytest.approx(100) and failed.bleu < 99.7
    assert re.search(f"{failed.bleu:.2f} .*120 sentences.*100.00", str(failed))


def test_bleu_of_single_words_may_fall_a_little():
    words = [f"w{i}" for i in range(1000)]
    for wrong, passed in ((2, True), (20, False)):
        found = compare_bleu(translations(*words), translations(*["other"] * wrong, *words[wrong:]), words)
        assert found.keras_bleu == pytest.approx(100) and found.passed is passed


def test_bleu_needs_as_many_lines():
    with pytest.raises(ValueError, match="`reference` .*Received: 1 and 2"):
        compare_bleu(translations("a"), translations("a"), ["a", "b"])
