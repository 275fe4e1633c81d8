"""A search among some tokens of the vocabulary, on tensors."""

import numpy as np
from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer.decoding.search import NEG_INF

#: With static shapes, the number of candidates is rounded up to a multiple of this.
_STEP = 256


def shortlist_candidates(shortlist, source):
    """`Shortlist.candidates` on tensors, inside a graph with dynamic shapes."""
    is_always = np.zeros(shortlist.vocab_size, "int32")
    is_always[shortlist.always] = 1
    # (batch, length, width) -> (batch * length * width, 1)
    found = ops.reshape(ops.cast(ops.take(shortlist.table, source, axis=0), "int32"), (-1, 1))
    is_candidate = ops.scatter_update(is_always, found, ops.ones_like(found[:, 0]))
    return ops.cast(ops.nonzero(is_candidate)[0], "int32")


def rounded_candidates(candidates) -> np.ndarray:
    """Pads candidates with zeros, so that fewer sizes are compiled, unless shapes may be dynamic."""
    padding = 0 if kv_cache.GROWS else -len(candidates) % _STEP
    return np.pad(np.asarray(candidates, "int32"), (0, padding))


class VocabularySubset:
    """The numbering of candidates inside a search, where they are 0, 1, 2 and so on.

    The special tokens keep their ids, because they, and all smaller ids, are among the candidates.

    Args:
        candidates: int32 tensor `(candidates,)`, in ascending order. After that, it may be padded with zeros.
    """

    def __init__(self, candidates):
        self.ids = candidates

    def to_vocabulary_ids(self, tokens):
        """The ids of tokens in the vocabulary."""
        return ops.take(self.ids, tokens, axis=0)

    def to_subset_ids(self, tokens):
        """The numbers of tokens in the search."""
        is_equal = ops.expand_dims(tokens, -1) == self.ids
        return ops.cast(ops.argmax(ops.cast(is_equal, "int32"), axis=-1), "int32")

    def masked(self, logits):
        """The logits, without those of padding."""
        if kv_cache.GROWS:
            return logits
        is_real = ops.concatenate([ops.ones((1,), "bool"), self.ids[1:] > self.ids[:-1]], axis=0)
        return ops.where(is_real, logits, ops.cast(NEG_INF, logits.dtype))
