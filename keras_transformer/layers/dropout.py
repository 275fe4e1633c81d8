"""Dropout with masks that cost next to nothing."""

import keras
from keras import ops

from keras_transformer.layers.random_bits import random_bits


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Dropout):
    """x · mask / (1 - rate), where each position of the mask is 0 with probability `rate`; in inference x itself.

    The mask is a hash of each position, the seed and the number of the call (see `random_bits`), in integer arithmetic
    that compilers fuse with the surrounding operations. `keras.layers.Dropout` draws from the
    backend's generator, which under XLA on CPUs takes a hundred times as long. The mask is the same on every
    backend. Keras's implicit mask passes through.

    Args:
        rate: probability, in [0, 1].
        seed: an int. Default: drawn from Python's generator.

    Call arguments:
        inputs: float tensor of any shape, of fewer than 2^31 positions.
        training: whether to drop; filled by Keras.

    Returns:
        The shape of `inputs`.

    Raises:
        ValueError: if `rate` is not in [0, 1], or `noise_shape` is given, which Keras's layer has.

    Example:

    >>> Dropout(0.5, seed=1)(np.ones((2, 4), "float32"), training=True).numpy()
    array([[0., 2., 2., 2.],
           [0., 0., 2., 0.]], dtype=float32)

    Reference:
        Srivastava et al. 2014, §4.
    """

    def __init__(self, rate, seed=None, **kwargs):
        if "noise_shape" in kwargs:
            raise ValueError(f"Each position is drawn by itself. Received: noise_shape={kwargs['noise_shape']}")
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        if self.rate == 1:
            return ops.zeros_like(inputs)
        seed, call = ops.unstack(self.seed_generator.next(), 2)
        is_kept = random_bits(ops.shape(inputs), seed, call) >= round(self.rate * 2**32) - 2**31
        return ops.where(is_kept, inputs * ops.cast(1 / (1 - self.rate), inputs.dtype), ops.cast(0, inputs.dtype))

    def get_config(self):
        config = super().get_config()
        config.pop("noise_shape")
        return config
