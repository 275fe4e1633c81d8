"""`generate` with a penalty and a processor finds what a loop over complete passes finds."""

import keras
import numpy as np
import pytest

from keras_transformer import LanguageModel, Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling

pytestmark = [pytest.mark.portable, pytest.mark.slow]

ops = keras.ops
to_numpy = ops.convert_to_numpy
VOCAB, EOS, PENALTY = 13, 3, 1.6
CONFIG = TransformerConfig(vocab_size=VOCAB, num_layers=2, d_model=8, num_heads=2, d_ff=11)
SOURCE = np.array([[4, 5, 6, 7, 3], [8, 3, 0, 0, 0], [9, 10, 11, 3, 0]], "int32")
PROMPT = np.array([[5, 6, 5], [8, 0, 0], [0, 0, 0]], "int32")


def process(logits, tokens, step):
    """Forbids odd tokens at every second step, and makes token 7 likelier."""
    is_odd = np.arange(VOCAB) % 2 == 1
    is_forbidden = ops.logical_and(is_odd & (np.arange(VOCAB) != EOS), step % 2 == 1)
    return ops.where(is_forbidden, -np.inf, logits + 0.5 * ops.one_hot(7, VOCAB))


def loop(logits_of, prompt, limit):
    """Greedy search by the definitions. Returns the tokens and their log probability."""
    tokens, total = [], 0.0
    while tokens[-1:] != [EOS]:
        logits, step = logits_of(tokens).astype("float64"), len(tokens)
        for token in {*tokens}:
            logits[token] *= 1 / PENALTY if logits[token] > 0 else PENALTY
        is_allowed = ~np.isin(np.arange(VOCAB), [0, 2])
        is_allowed[[1, 5, 7, 9, 11]] &= step % 2 == 0
        logits[7] += 0.5 * is_allowed[7]  # A forbidden token keeps its logit.
        log_probs = logits - np.log(np.exp(logits).sum())
        best = int(np.where(is_allowed, log_probs, -np.inf).argmax())
        tokens.append(prompt[step] if step < len(prompt) else EOS if step == limit - 1 else best)
        total += log_probs[tokens[-1]]
    return tokens, total


OPTIONS = {"repetition_penalty": PENALTY, "logits_processor": process, "extra_length": 5}


def shifted(made):
    """The input of one shape, which each backend compiles once."""
    return np.array([[2, *made, *[0] * (12 - len(made))]], "int32")


def test_a_transformer(randomize):
    model = randomize(Transformer(CONFIG), scale=0.4)
    tokens, scores, _ = model.generate(SOURCE, GreedySearch(**OPTIONS))
    for row, source in enumerate(SOURCE):

        def logits_of(made, source=source):
            return to_numpy(model({"source": source[None], "target": shifted(made)}))[0, len(made)]

        expected, total = loop(logits_of, [], (source != 0).sum() + 5)
        assert np.trim_zeros(tokens[row, 0], "b").tolist() == expected
        assert scores[row, 0] == pytest.approx(total, abs=1e-3)


def test_a_language_model(randomize):
    """The prompt counts as generated, and the steps of the processor count it."""
    model = randomize(LanguageModel(CONFIG), scale=0.4)
    tokens, scores, _ = model.generate(PROMPT, GreedySearch(**OPTIONS))
    for row, prompt in enumerate(PROMPT):
        prompt = [i for i in prompt.tolist() if i]
        expected, total = loop(lambda made: to_numpy(model(shifted(made)))[0, len(made)], prompt, len(prompt) + 5)
        assert np.trim_zeros(tokens[row, 0], "b").tolist() == expected
        assert scores[row, 0] == pytest.approx(total, abs=1e-3)


def test_beam_one_sample_of_one_candidate_and_greedy_are_equal(randomize):
    model = randomize(LanguageModel(CONFIG), scale=0.4)
    greedy = model.generate(PROMPT, GreedySearch(**OPTIONS))
    beam = model.generate(PROMPT, BeamSearch(beam_size=1, length_penalty=0.0, **OPTIONS))
    sample = model.generate(PROMPT, Sampling(top_k=1, **OPTIONS))
    for other in (beam, sample):
        np.testing.assert_array_equal(other.tokens, greedy.tokens)
        np.testing.assert_allclose(other.scores, greedy.scores, atol=1e-4)
