import numpy as np
import pytest

from keras_transformer.translate.alignment import Alignment, diagonal, from_attention


def test_weights_of_words_are_sums_of_those_of_their_subwords():
    spans = [(0, 2), (2, 5), (5, 6)]
    alignment = Alignment(spans, spans, np.eye(3, dtype="float32"))
    np.testing.assert_allclose(alignment.between([(0, 5), (5, 6)], [(0, 2), (3, 5)]), [[1, 0], [2 / 3, 0]])


def test_bytes_of_a_character_count_as_the_character():
    alignment = Alignment([(0, 0), (0, 0), (0, 1)], [(0, 1)], np.ones((1, 3), "float32"))
    assert alignment.between([(0, 1)], [(0, 1)]) == [[3.0]]


def test_attention_is_normalized_for_each_source_subword():
    weights = np.array([[0.1, 0.8, 0.1], [0.3, 0.6, 0.1], [0.0, 0.0, 1.0]], "float32")
    found = from_attention(weights, [(0, 1), (1, 2)], [(0, 1), (1, 2)])
    np.testing.assert_allclose(found.weights, [[0.25, 0.8 / 1.4], [0.75, 0.6 / 1.4]], rtol=1e-6)


@pytest.mark.parametrize(("sentence", "translation"), [("a b c d", "a b"), ("a", "a b c"), ("", "a"), ("a", "")])
def test_the_diagonal_aligns_by_position(sentence, translation):
    weights = diagonal(sentence, translation).weights
    assert weights.shape == (len(translation.split()), len(sentence.split()))
    if sentence == "a b c d":
        assert weights[:, 0].argmax() == 0 and weights[:, 3].argmax() == 1
