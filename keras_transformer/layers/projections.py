"""Base class of layers that consist of projections."""

import zlib

import keras

from keras_transformer.layers.adaptation import Composite
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.seeds import mix_seed, part_initializer


class Projections(Composite):
    """Base class of layers with projections and dropout, with the arguments that these share.

    Args:
        kernel_initializer: initializer of the kernels.
        bias_initializer: initializer of the biases.
        kernel_regularizer: regularizer of the kernels.
        seed: int, from which each projection and dropout derives a seed of its own.
    """

    def __init__(self, kernel_initializer, bias_initializer, kernel_regularizer, seed, **kwargs):
        super().__init__(**kwargs)
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.seed = seed
        # Layers of two classes, with one seed, have different weights.
        self._seed_index = zlib.crc32(type(self).__name__.encode())

    def _dense(self, units, name, use_bias, activation=None):
        return keras.layers.Dense(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=part_initializer(self.kernel_initializer, self._next_index(), self.seed),
            bias_initializer=part_initializer(self.bias_initializer, self._next_index(), self.seed),
            kernel_regularizer=self.kernel_regularizer,
            dtype=self.dtype_policy,
            name=name,
        )

    def _dropout(self, rate, dtype=None):
        seed = mix_seed(self.seed, self._next_index())
        return Dropout(rate, seed=seed, dtype=dtype or self.dtype_policy, name="dropout")

    def _next_index(self):
        self._seed_index += 1
        return self._seed_index
