"""Compiles functions of a model, such as its search. A thin Keras model has the function as its `call`."""

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_transformer import cache as kv_cache
from keras_transformer.decoding import Hypotheses, Sampling
from keras_transformer.decoding.vocabulary_subset import rounded_candidates

#: With static shapes each length is compiled separately, so lengths are rounded up to a multiple of this.
_LENGTH_STEP = 16
_COMPILING = threading.Lock()


class CompiledSearch:
    """Runs the method `search` of a model, and other functions, compiled.

    Attributes:
        source_name: name of the first argument of `search`.
        source_spec: the source as a structure of symbolic tensors.
        special_ids: the `SpecialIds` of the tokens that the model generates.
        max_length: maximum number of tokens; `None` for any number.
        search: the search on tensors.
    """

    source_name = "source"
    source_spec: Any
    special_ids: Any  # `Any`, because in some models these are properties.
    max_length: Any
    search: Callable[..., Hypotheses]

    def _compiled(self, function, **options) -> "Compiled":
        with _COMPILING:  # Several threads may generate at a time.
            compiled = self._compiled_functions(function, **options)
            if not compiled.has_weights_of_model():
                self._compiled_functions.cache_clear()
                compiled = self._compiled_functions(function, **options)
            return compiled

    @functools.cached_property
    def _compiled_functions(self):
        # Caches one compiled model per function and strategy. Keras does not track them as layers inside a closure.
        return functools.cache(functools.partial(Compiled, self))

    def _hypotheses(self, strategy, arrays, longest, candidates=None, **options):
        """Runs the compiled `search`. A search is compiled for each strategy and options.

        Args:
            strategy: the decoding strategy.
            arrays: tensor arguments of `search` by name.
            longest: number of positions of the longest source or prefix.
            candidates: the tokens to search among, or `None`.
            **options: other arguments of `search`.
        """
        if isinstance(strategy, Sampling):
            noise = strategy.noise(batch_size(next(iter(arrays.values()))), strategy.max_length(longest))
            arrays = {**arrays, "noise": noise}
            strategy = dataclasses.replace(strategy, seed=None)  # Share one compiled search between seeds.
        if candidates is not None:
            arrays = {**arrays, "candidates": rounded_candidates(candidates)}
        tokens, scores, token_scores = self._compiled(type(self).search, strategy=strategy, **options).run(**arrays)
        used = (tokens != self.special_ids.pad).any(axis=(0, 1)).nonzero()[0].max(initial=-1) + 1
        token_scores = token_scores[:, :, :used] if strategy.token_scores else ()
        return Hypotheses(tokens[:, :, :used], scores, token_scores)

    def _rounded(self, ids):
        """Pads ids to a multiple of 16 columns, at most `max_length`, unless shapes may be dynamic."""
        if kv_cache.GROWS:
            return ids
        padding = min(-ids.shape[1] % _LENGTH_STEP, (self.max_length or sys.maxsize) - ids.shape[1])
        return np.pad(ids, ((0, 0), (0, padding)), constant_values=self.special_ids.pad)


class Compiled(keras.Model):
    """Runs a function of a model compiled. Eager search is 100 times slower.

    On TensorFlow this is a plain `tf.function`: `predict_on_batch` in the scope of a strategy runs every replica on all
    rows. On other backends it is `predict_on_batch`.

    Args:
        model: the model.
        function: receives the model, and tensors and options as keyword arguments.
        **options: keyword arguments that are the same in every call.
    """

    def __init__(self, model, function, **options):
        # Without `autocast` the inputs keep their dtype. Sampling noise in half precision would be too coarse.
        super().__init__(name=function.__name__, dtype=model.dtype_policy, autocast=False)
        self.model = model
        self.has_weights_of_model = _weights_check(model)
        self.function = function
        self.options = options
        # XLA needs static shapes. JAX always compiles.
        self.jit_compile = not kv_cache.GROWS
        if keras.backend.backend() == "tensorflow":
            self._graph = _tensorflow_function(lambda inputs: self(inputs))
        else:
            self.make_predict_function()  # Before several threads call `run`.
        self._traced = set()

    def call(self, inputs):
        return self.function(self.model, **inputs, **self.options)

    def run(self, **arrays):
        """Runs the function on arrays, its inputs by name. Returns its result as NumPy arrays."""
        if keras.backend.backend() != "tensorflow":
            return self.predict_on_batch(arrays)
        if frozenset(arrays) not in self._traced:
            _trace(self._graph, arrays, getattr(self.model, "source_spec", None))
            self._traced.add(frozenset(arrays))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, self._graph(arrays))


def _weights_check(model):
    """Returns a function that tells whether a model still has its weights. `enable_lora` and `quantize` add some."""
    # A tuple in an attribute would be tracked by Keras.
    weights = tuple(model.weights)
    return lambda: [*map(id, model.weights)] == [*map(id, weights)]


def _tensorflow_function(function):
    import tensorflow as tf

    return tf.function(function, autograph=False)


def _trace(function, arrays, source_spec):
    """Traces a TensorFlow function for arrays of any size. TensorFlow itself traces the first size, then any size."""
    import tensorflow as tf

    specs = {
        name: keras.tree.map_structure(lambda x: tf.TensorSpec([None] * x.ndim, x.dtype), x)
        for name, x in arrays.items()
    }
    if "source" in specs:  # Layers such as convolutions need the sizes that are static.
        specs["source"] = keras.tree.map_structure(
            lambda x, of: tf.TensorSpec(of.shape, x.dtype), specs["source"], source_spec
        )
    function.get_concrete_function(specs)


def batch_size(arrays) -> int:
    """Number of rows of an array, or of each array of a structure."""
    return len(keras.tree.flatten(arrays)[0])
