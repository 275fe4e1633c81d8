"""Compiles functions of a model, such as its search. A thin Keras model has the function as its `call`."""

import sys

import keras
import numpy as np

from keras_transformer import cache as kv_cache

#: With static shapes each length is compiled separately, so lengths are rounded up to a multiple of this.
_LENGTH_STEP = 16


class Compiled(keras.Model):
    """Runs a function of a model compiled. Eager search is 100 times slower.

    On TensorFlow this is a plain `tf.function`: `predict_on_batch` in the scope of a strategy runs every replica on all
    rows. On other backends it is `predict_on_batch`.

    Args:
        transformer: a `Transformer` or `LanguageModel`.
        function: receives the model, and tensors and options as keyword arguments.
        **options: keyword arguments that are the same in every call.
    """

    def __init__(self, transformer, function, **options):
        # Without `autocast` the inputs keep their dtype. Sampling noise in half precision would be too coarse.
        super().__init__(name=function.__name__, dtype=transformer.dtype_policy, autocast=False)
        self.transformer = transformer
        self.has_weights_of_model = _weights_check(transformer)
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
        return self.function(self.transformer, **inputs, **self.options)

    def run(self, **arrays):
        """Runs the function on arrays, its inputs by name. Returns its result as NumPy arrays."""
        if keras.backend.backend() != "tensorflow":
            return self.predict_on_batch(arrays)
        if frozenset(arrays) not in self._traced:
            _trace(self._graph, arrays)
            self._traced.add(frozenset(arrays))
        return keras.tree.map_structure(keras.ops.convert_to_numpy, self._graph(arrays))


def _weights_check(model):
    """A function that tells whether the weights of a model are those of now: not after `enable_lora` or `quantize`."""
    # A tuple in an attribute would be tracked by Keras.
    weights = tuple(model.weights)
    return lambda: [*map(id, model.weights)] == [*map(id, weights)]


def _tensorflow_function(function):
    import tensorflow as tf

    return tf.function(function, autograph=False)


def _trace(function, arrays):
    """Traces a TensorFlow function for arrays of any size. TensorFlow itself traces the first size, then any size."""
    import tensorflow as tf

    specs = {name: tf.TensorSpec([None] * np.ndim(array), array.dtype) for name, array in arrays.items()}
    function.get_concrete_function(specs)


def rounded(ids, pad_id: int, longest: int | None) -> np.ndarray:
    """Pads ids to a multiple of 16 columns, at most `longest`, unless shapes may be dynamic."""
    if kv_cache.GROWS:
        return ids
    padding = min(-ids.shape[1] % _LENGTH_STEP, (longest or sys.maxsize) - ids.shape[1])
    return np.pad(ids, ((0, 0), (0, padding)), constant_values=pad_id)
