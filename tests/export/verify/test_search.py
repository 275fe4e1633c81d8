"""Checks of a search on scripted log probabilities."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, SpecialIds
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.export.verify.search import check_search

#: Probabilities of padding, unknown, start, end and two words, at every step.
PROBABILITIES = np.array([1e-9, 0.1, 1e-9, 0.3, 0.4, 0.2])
SOURCE = np.array([[4, 3]] * 2, "int32")
SEARCH = BeamSearch(beam_size=2, length_penalty=0.0)
EMPTY, WORD, UNKNOWN = [3, 0], [4, 3], [1, 3]


class Model:
    """A model whose probabilities are fixed. Its own search finds the word."""

    config, special_ids = SimpleNamespace(max_length=None), SpecialIds()

    def __call__(self, inputs, training):
        return np.broadcast_to(np.log(PROBABILITIES), (*inputs["target"].shape, 6))

    def generate(self, source, strategy, **options):
        return np.array([[WORD]] * len(source)), np.zeros((len(source), 1))


def program(*hypotheses, allowed=1.0):
    """A runtime with the same hypotheses for every sentence."""

    def search(source, n_best=1):
        tokens = np.array([hypotheses[:n_best]] * len(source), "int32")
        scores = np.where(tokens > 0, np.log(PROBABILITIES[tokens] / allowed), 0).sum(axis=-1)
        return tokens, scores.astype("float32")

    tokenizer = SimpleNamespace(text_constraints=SimpleNamespace(forbidden=(1,)))
    return SimpleNamespace(search=search, target_tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("runtime", "passed"),
    [
        (program(WORD, EMPTY), True),
        (program(EMPTY, WORD), True),
        (program(EMPTY, EMPTY), False),
        (program(UNKNOWN, WORD), False),
        (program(WORD, EMPTY, allowed=0.9), True),
        (program(WORD, EMPTY, allowed=0.8), False),
    ],
)
def test_only_sound_searches_pass(runtime, passed):
    report = check_search(KerasSearch(Model(), SEARCH), runtime, [SOURCE])
    assert report.passed == passed and report.sound == 2 * passed
