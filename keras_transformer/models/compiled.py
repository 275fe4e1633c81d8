"""Compiled functions of a `Transformer` or a `LanguageModel`: a thin Keras model whose call is the function."""

import sys

import keras
import numpy as np

from keras_transformer import cache as kv_cache

#: Where shapes are static each length compiles anew, so lengths are rounded up to this.
_LENGTH_STEP = 16


class Compiled(keras.Model):
    """A function of a model run by `predict_on_batch`, which compiles it. Eager search is 100 times slower.

    Args:
        transformer: the model.
        function: of the model and of tensors, called by their names.
        **options: of the function, beside its tensors; the same in every call.
    """

    def __init__(self, transformer, function, **options):
        # No casting of what comes in: noise in half precision would be too coarse.
        super().__init__(name=function.__name__, dtype=transformer.dtype_policy, autocast=False)
        self.transformer = transformer
        self.function = function
        self.options = options
        # Dynamic shapes run without XLA; JAX always compiles.
        self.jit_compile = not kv_cache.GROWS

    def call(self, inputs):
        return self.function(self.transformer, **inputs, **self.options)

    def run(self, **arrays):
        """The result for one batch.

        Args:
            **arrays: the function's tensors, by name.

        Returns:
            The function's result, in arrays.
        """
        return self.predict_on_batch(arrays)


def rounded(ids, pad_id: int, longest: int | None) -> np.ndarray:
    """Ids padded to a length that is compiled once for many.

    Args:
        ids: int array `(batch, length)`.
        pad_id: id of padding.
        longest: the model's learned positions, or `None`.

    Returns:
        Array `(batch, length or more)`; the same array where shapes may be dynamic.
    """
    if kv_cache.GROWS:
        return ids
    padding = min(-ids.shape[1] % _LENGTH_STEP, (longest or sys.maxsize) - ids.shape[1])
    return np.pad(ids, ((0, 0), (0, padding)), constant_values=pad_id)
