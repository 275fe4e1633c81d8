"""Pooling of a sequence to one vector per row."""

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.checks import one_of, require
from keras_transformer.layers.checks import check_rank
from keras_transformer.layers.configured import Configured

#: Below every value that an input can have.
_LOWEST = -3.4e38


@keras.saving.register_keras_serializable(package="keras_transformer")
class SequencePooling(Configured):
    """One vector per sequence: the mean, the first or the maximum of its positions.

    Masking: positions whose mask is `False` are left out, and the output has no mask. A row without other positions
    is pooled to zeros, where `keras.layers.GlobalAveragePooling1D` gives NaN. The computation is in float32 under every
    dtype policy.

    Args:
        pooling: `"mean"`, `"first"` or `"max"`. `"first"` takes the first position whose mask is `True`, also if the
            padding is on the left.

    Call arguments:
        inputs: `(batch, length, width)`.
        mask: boolean `(batch, length)`, `False` at padding. Default: the implicit mask.

    Returns:
        `(batch, width)`.

    Raises:
        ValueError: if `pooling` is unknown. In a call: if `inputs` has the wrong rank, or the mask has a float dtype or
            does not have one value per position.

    Example:

    >>> x = np.array([[[1.0], [3.0], [9.0]], [[5.0], [6.0], [7.0]]])
    >>> mask = np.array([[True, True, False], [False, False, False]])
    >>> SequencePooling("mean")(x, mask=mask).numpy()
    array([[2.],
           [0.]], dtype=float32)

    Reference:
        Reimers & Gurevych 2019, "Sentence-BERT", §3.
    """

    def __init__(self, pooling="mean", **kwargs):
        super().__init__(**kwargs)
        require(one_of(("mean", "first", "max"), pooling=pooling))
        self.supports_masking = True
        self.pooling = pooling

    def build(self, input_shape):
        check_rank("inputs", input_shape)

    def call(self, inputs, mask=None):
        check_rank("inputs", inputs.shape)
        mask = masks.resolve(mask, inputs)
        is_real = ops.ones(ops.shape(inputs)[:2], "bool") if mask is None else masks.as_boolean("`mask`", mask)
        x = ops.cast(inputs, "float32")
        if self.pooling == "max":
            pooled = _maximum(x, is_real)
        else:
            is_real = _only_first(is_real) if self.pooling == "first" else is_real
            count = ops.sum(ops.cast(is_real, "float32"), axis=1, keepdims=True)
            pooled = ops.sum(ops.where(ops.expand_dims(is_real, -1), x, 0.0), axis=1) / ops.maximum(count, 1.0)
        return ops.cast(pooled, inputs.dtype)

    def compute_mask(self, inputs, previous_mask=None):
        return None

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])


def _only_first(is_real):
    """Boolean `(batch, length)`: the first real position of each row."""
    return ops.logical_and(is_real, ops.cumsum(ops.cast(is_real, "int32"), axis=1) == 1)


def _maximum(x, is_real):
    # The initial value is that of sequences of length 0.
    largest = ops.max(ops.where(ops.expand_dims(is_real, -1), x, _LOWEST), axis=1, initial=_LOWEST)
    nothing = ops.zeros((ops.shape(x)[0], x.shape[-1]), "float32")
    return ops.where(ops.any(is_real, axis=1, keepdims=True), largest, nothing)
