"""Compiled search: a thin Keras model whose call is the search."""

import sys

import keras
import numpy as np

from keras_transformer import cache as kv_cache
from keras_transformer.decoding import Hypotheses

#: Where shapes are static each source length compiles anew, so lengths are rounded up to this.
_LENGTH_STEP = 16


class Generator(keras.Model):
    """`Transformer.search` run by `predict_on_batch`, which compiles it. Eager search is 100 times slower.

    Args:
        transformer: the model that searches.
        strategy: `BeamSearch` or `GreedySearch`.
    """

    def __init__(self, transformer, strategy):
        super().__init__(name="generator", dtype=transformer.dtype_policy)
        self.transformer = transformer
        self.strategy = strategy
        # Dynamic shapes run without XLA; JAX always compiles.
        self.jit_compile = not kv_cache.GROWS

    def call(self, source):
        return tuple(self.transformer.search(source, self.strategy))

    def run(self, source):
        """Searches one batch.

        Args:
            source: int32 array `(batch, source_length)`.

        Returns:
            `Hypotheses` of arrays, as long as the longest.
        """
        pad_id = self.transformer.config.pad_id
        if not kv_cache.GROWS:
            longest = self.transformer.config.max_length or sys.maxsize
            padding = min(-source.shape[1] % _LENGTH_STEP, longest - source.shape[1])
            source = np.pad(source, ((0, 0), (0, padding)), constant_values=pad_id)
        tokens, scores = self.predict_on_batch(source)
        used = (tokens != pad_id).any(axis=(0, 1)).nonzero()[0]
        return Hypotheses(tokens[:, :, : used.max(initial=-1) + 1], scores)
