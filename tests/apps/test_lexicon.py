import numpy as np
import pytest

from keras_transformer.apps import lexicon as module
from keras_transformer.apps.lexicon import coverage, learn_lexicon, make_shortlist

VOCAB = 1_000


def translated(source):
    """Each source token has one translation, in the opposite order."""
    return [token + 500 for token in reversed(source)]


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(1)
    sources = [rng.integers(100, 160, rng.integers(1, 9)).tolist() for _ in range(400)]
    return sources, [translated(source) for source in sources]


@pytest.mark.parametrize("chunk", [7, 10_000])
def test_the_translation_of_each_token_is_found(sentences, monkeypatch, chunk):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    lexicon = learn_lexicon(*sentences, VOCAB)
    right = lexicon.target == lexicon.source + 500
    assert right.sum() == 60 and lexicon.probability[right].min() > 0.9
    totals = np.bincount(lexicon.source, lexicon.probability)
    np.testing.assert_allclose(totals[totals > 0], 1)


def test_a_shortlist_has_the_likeliest_and_the_most_frequent_tokens(sentences):
    lexicon = learn_lexicon(*sentences, VOCAB)
    frequencies = np.zeros(VOCAB, int)
    frequencies[[7, 600, 800]] = 5, 9, 2
    shortlist = make_shortlist(lexicon, frequencies, VOCAB, width=1, num_frequent=200, required=range(4))
    assert len(shortlist.always) == 200
    assert {0, 1, 2, 3, 7, 600, 800} <= set(shortlist.always.tolist())
    assert shortlist.table[101].tolist() == [601]
    assert 600 not in shortlist.table  # It is always considered.
    assert coverage(shortlist, *sentences).share == 1.0


def test_source_tokens_may_be_copied():
    lexicon = learn_lexicon([[300], [301]], [[800], [801]], VOCAB)
    copies = np.array([900 if i == 302 else -1 if i == 303 else i for i in range(VOCAB)])
    frequencies = np.zeros(VOCAB, int)
    shortlist = make_shortlist(lexicon, frequencies, VOCAB, 2, num_frequent=128, required=range(4), copies=copies)
    extra = [set(shortlist.candidates([[i]])) - set(shortlist.always.tolist()) for i in (5, 300, 302, 303)]
    assert extra == [set(), {300, 800}, {900}, set()]  # 5 is always considered.


def test_coverage_grows_with_the_batch():
    lexicon = learn_lexicon([[300], [301]], [[800], [801]], VOCAB)
    shortlist = make_shortlist(lexicon, np.zeros(VOCAB, int), VOCAB, width=2, num_frequent=128, required=range(4))
    sources, targets = [[300], [301]], [[800, 801], [800, 801]]
    assert coverage(shortlist, sources, targets) == (129, 0.5)
    assert coverage(shortlist, sources, targets, batch_size=2) == (130, 1.0)
