"""Scripted logits: a table says what follows every possible beginning."""

import keras
import numpy as np
import pytest

from keras_transformer.cache import KeyValue
from keras_transformer.decoding import SearchInputs, SpecialIds, run_search
from keras_transformer.decoding.allowed_tokens import AllowedTokens

to_numpy = keras.ops.convert_to_numpy
ops = keras.ops
VOCAB, LIMIT = 6, 4
IDS = SpecialIds(pad=0, bos=2, eos=3)


class Script:
    """Logits of `sentences` independent sentences, `(sentences, step, beginning, vocabulary)`.

    A beginning is its tokens read as a number in base `vocab`. It lives in the search's cache, so a
    cache that is not reordered with its rows gives wrong logits; the sentence's number is the memory.
    """

    constraints = None  # `TextConstraints`.

    def __init__(self, sentences, seed=0, eos_bonus=0.0, limit=LIMIT, vocab=VOCAB):
        rng = np.random.default_rng(seed)
        self.table = rng.normal(scale=2, size=(sentences, limit, vocab ** (limit - 1), vocab)).astype("float32")
        self.table[..., IDS.eos] += eos_bonus
        self.sentences, self.vocab = sentences, vocab

    def log_probs(self, sentence, reference):
        def log_probs(prefix):
            beginning = sum(token * self.vocab**i for i, token in enumerate(reversed(prefix)))
            return reference.log_softmax(self.table[sentence, len(prefix), beginning])

        return log_probs

    def next_logits(self, tokens, cache, memory, offset):
        self.rows.append(tokens.shape[0])
        beginning, _ = cache[0]
        sentence = ops.repeat(memory, self.beam_size, axis=0)
        beginning = ops.where(offset == 0, 0, beginning * self.vocab + tokens)
        step = ops.minimum(offset, self.table.shape[1] - 1)
        position = (sentence * self.table.shape[1] + step) * self.table.shape[2] + beginning
        logits = ops.take(ops.reshape(self.table, (-1, self.vocab)), position, axis=0)
        return logits, (KeyValue(beginning, beginning),)

    def run(self, strategy, limits=None, max_length=LIMIT, **sentences):
        limits = ops.convert_to_tensor([LIMIT] * self.sentences if limits is None else limits, "int32")
        found = self.search(strategy, SearchInputs(limits, **sentences), max_length, IDS)
        return tuple(to_numpy(part) for part in found if not isinstance(part, tuple))

    def search(self, strategy, sentences, max_length, ids):
        self.beam_size, self.rows = strategy.beam_size, []
        beginning = ops.zeros((self.sentences * strategy.beam_size,), "int32")
        cache, memory = (KeyValue(beginning, beginning),), ops.arange(self.sentences, dtype="int32")
        allowed = self.constraints and AllowedTokens(self.constraints)
        return run_search(strategy, self.next_logits, cache, memory, sentences, max_length, ids, allowed)


@pytest.fixture(scope="session")
def scripted():
    """`Script`; no folder of tests is on the import path."""
    return Script
