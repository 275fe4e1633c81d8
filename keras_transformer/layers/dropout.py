"""Dropout with masks that cost next to nothing."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class Dropout(keras.layers.Dropout):
    """x · mask / (1 - rate), where each place of the mask is 0 with probability `rate`; in inference x itself.

    The mask is a hash of each place's number, the seed and the number of the call, in integer arithmetic that
    compilers fuse with what surrounds it; Keras's layer draws from the backend's generator, which under XLA on
    CPUs takes many times as long. It is the same on every backend. Keras's implicit mask passes through.

    Args:
        rate: probability, in [0, 1].
        seed: an int. Default: drawn from Python's generator.

    Call arguments:
        inputs: float tensor of any shape, of less than 2^31 places.
        training: whether to drop; filled by Keras.

    Returns:
        The shape of `inputs`.

    Raises:
        ValueError: if `rate` is not in [0, 1], or `noise_shape` is given, which Keras's layer has.

    Example:

    >>> Dropout(0.5, seed=1)(np.ones((2, 4), "float32"), training=True).numpy()
    array([[2., 0., 2., 0.],
           [2., 0., 2., 0.]], dtype=float32)

    Reference:
        Srivastava et al. 2014, §4.
    """

    def __init__(self, rate, seed=None, **kwargs):
        if "noise_shape" in kwargs:
            raise ValueError(f"Every place is drawn by itself. Received: noise_shape={kwargs['noise_shape']}")
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        if self.rate == 1:
            return ops.zeros_like(inputs)
        is_kept = _bits(ops.shape(inputs), self.seed_generator.next()) >= round(self.rate * 2**32) - 2**31
        return ops.where(is_kept, inputs * ops.cast(1 / (1 - self.rate), inputs.dtype), ops.cast(0, inputs.dtype))

    def get_config(self):
        config = super().get_config()
        config.pop("noise_shape")
        return config


def _bits(shape, seed):
    """An int32 tensor, uniform in [-2^31, 2^31), that a seed `(2,)` decides."""
    size = 1
    for length in shape:
        size = size * length
    places = ops.reshape(ops.arange(size, dtype="int32"), shape)
    key, number = (ops.cast(part, "int32") for part in (seed[0], seed[1]))
    # Seeds come one after another, and so do calls: mixed, and put in between two rounds, they have nothing in common.
    key = _mixed(key)
    return _mixed(ops.bitwise_xor(_mixed(places + key), _mixed(key + number)))


def _mixed(x):
    """A bijection of int32 numbers in which each bit of x turns about half of the bits: MurmurHash3's finalizer."""
    x = ops.bitwise_xor(x, _shifted(x, 16)) * (0x85EBCA6B - 2**32)
    x = ops.bitwise_xor(x, _shifted(x, 13)) * (0xC2B2AE35 - 2**32)
    return ops.bitwise_xor(x, _shifted(x, 16))


def _shifted(x, places):
    """X >> places with zeros from the left: integers without a sign are not to be had on every backend."""
    return ops.bitwise_and(ops.right_shift(x, places), 2 ** (32 - places) - 1)
