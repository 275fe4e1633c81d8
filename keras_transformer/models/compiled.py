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
LENGTH_STEP = 16
#: Compiled functions that a model keeps: one for each strategy, of which requests to a server may have many.
_MOST_COMPILED = 64
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
        return functools.lru_cache(_MOST_COMPILED)(functools.partial(Compiled, self))

    def _hypotheses(self, strategy, arrays, longest, candidates=None, **options):
        """Runs the compiled `search`. A search is compiled for each strategy and options.

        Args:
            strategy: the decoding strategy.
            arrays: tensor arguments of `search` by name.
            longest: number of positions of the longest source or prefix.
            candidates: the tokens to search among, or `None`.
            **options: other arguments of `search`.
        """
        strategy, arrays = with_noise(strategy, arrays, longest)
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
        padding = min(-ids.shape[1] % LENGTH_STEP, (self.max_length or sys.maxsize) - ids.shape[1])
        return np.pad(ids, ((0, 0), (0, padding)), constant_values=self.special_ids.pad)


class Compiled(keras.Model):
    """Runs a function of a model compiled. Eager search is 100 times slower.

    Not by `predict_on_batch`: in the scope of a TensorFlow strategy it runs every replica on all rows, and on JAX it
    donates the buffers of the weights, so that several threads cannot run it.

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
        self._run = _COMPILERS[keras.backend.backend()](self)

    def call(self, inputs):
        return self.function(self.model, **inputs, **self.options)

    def run(self, **arrays):
        """Runs the function on arrays, its inputs by name. Returns its result as NumPy arrays."""
        return keras.tree.map_structure(keras.ops.convert_to_numpy, self.run_tensors(arrays))

    def run_tensors(self, inputs, specs=None):
        """Runs the function on a dict of arrays or tensors by name. Returns tensors.

        Args:
            inputs: the inputs.
            specs: result of `result_specs` of the function that returned the inputs. Default: inputs of any size.
        """
        return self._run(inputs, specs)

    def result_specs(self, inputs):
        """What TensorFlow knows of the shapes of the result, after a call with these inputs."""
        return self._run.result_specs(inputs) if isinstance(self._run, _TensorFlowFunction) else None


def _weights_check(model):
    """Returns a function that tells whether a model still has its weights. `enable_lora` and `quantize` add some."""
    # A tuple in an attribute would be tracked by Keras.
    weights = tuple(model.weights)
    return lambda: [*map(id, model.weights)] == [*map(id, weights)]


class _TensorFlowFunction:
    """A `tf.function`, traced once for arrays of any size. TensorFlow itself traces the first size, then any size."""

    def __init__(self, compiled):
        import tensorflow as tf

        self._tf = tf
        self._source_spec = getattr(compiled.model, "source_spec", None)
        self._function = tf.function(lambda inputs: compiled(inputs), autograph=False)
        self._traced = {}

    def __call__(self, inputs, specs):
        names = _names(inputs)
        if names not in self._traced:
            self._traced[names] = self._function.get_concrete_function(specs or self._any_size(inputs))
        return self._function(inputs)

    def result_specs(self, inputs):
        """The `tf.TensorSpec`s of the result for such inputs. Axes whose sizes may differ are `None`."""
        result = self._traced[_names(inputs)].structured_outputs
        return keras.tree.map_structure(lambda x: None if x is None else self._tf.TensorSpec(x.shape, x.dtype), result)

    def _any_size(self, inputs):
        specs = {
            name: keras.tree.map_structure(lambda x: self._tf.TensorSpec([None] * x.ndim, x.dtype), x)
            for name, x in inputs.items()
        }
        if "source" in specs:  # Layers such as convolutions need the sizes that are static.
            specs["source"] = keras.tree.map_structure(
                lambda x, of: self._tf.TensorSpec(of.shape, x.dtype), specs["source"], self._source_spec
            )
        return specs


def _names(inputs):
    """The paths of the tensors of a structure."""
    return tuple(path for path, _ in keras.tree.flatten_with_path(inputs))


def _jax_function(compiled):
    import jax  # pyright: ignore[reportMissingImports]

    @jax.jit
    def run(values, inputs):
        with keras.StatelessScope(state_mapping=[*zip(compiled.model.variables, values, strict=True)]):
            return compiled(inputs)

    return lambda inputs, specs: run([variable.value for variable in compiled.model.variables], inputs)


def _torch_function(compiled):
    import torch  # pyright: ignore[reportMissingImports]

    def run(inputs, specs):
        with torch.no_grad():
            return compiled(inputs)

    return run


#: How a function is compiled on each backend.
_COMPILERS = {"tensorflow": _TensorFlowFunction, "jax": _jax_function, "torch": _torch_function}


def with_noise(strategy, arrays, longest):
    """Replaces the seed of a `Sampling` by its noise, so that all seeds share one compiled search.

    Returns the strategy and the arrays of the search.
    """
    if not isinstance(strategy, Sampling):
        return strategy, arrays
    noise = strategy.noise(batch_size(next(iter(arrays.values()))), strategy.max_length(longest))
    return dataclasses.replace(strategy, seed=None), {**arrays, "noise": noise}


def batch_size(arrays) -> int:
    """Number of rows of an array, or of each array of a structure."""
    return len(keras.tree.flatten(arrays)[0])
