"""Positional encodings that are added to embeddings: sinusoidal or learned."""

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.checks import at_least, one_of, require
from keras_transformer.layers.checks import check_rank, check_width


def segment_positions(segments):
    """Computes the position of each token in its segment: the number of earlier tokens of the same segment.

    Args:
        segments: int `(batch, length)`, segment of each token.

    Returns:
        Int32 `(batch, length)`.

    Example:

    >>> segment_positions(np.array([[1, 1, 1, 2, 2]])).numpy()
    array([[0, 1, 2, 0, 1]], dtype=int32)
    """
    length = ops.shape(segments)[1]
    is_before = masks.causal_mask(length, length, offset=-1)
    is_counted = ops.logical_and(masks.segment_mask(segments, segments), is_before)
    return ops.sum(ops.cast(is_counted, "int32"), axis=-1)


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(keras.layers.Layer):
    """x + PE with PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same).

    Any length is supported. The angles are computed in float32 under every dtype policy. The implicit mask is passed
    on unchanged.

    Args:
        max_wavelength: the constant 10000 in the formula.
        layout: `"interleaved"`, as in the formula, or `"halves"`, all sines before all cosines:
            PE(pos, i) = sin(pos / 10000^(2i/d_model)), PE(pos, d_model/2 + i) = cos(same).

    Call arguments:
        inputs: `(batch, length, d_model)` with an even `d_model`; or `(batch, d_model)`, one position per row.
        offset: position of the first input; an int or an int scalar tensor.
        positions: int `(batch, length)`, for rows that pack several sequences. Default: `offset`, `offset` + 1, ….

    Returns:
        The shape of `inputs`.

    Raises:
        ValueError: if `layout` is unknown, `d_model` is odd, or `inputs` has the wrong rank.

    Example:

    >>> PositionalEncoding()(np.zeros((1, 2, 4), "float32")).numpy().round(4)
    array([[[0.    , 1.    , 0.    , 1.    ],
            [0.8415, 0.5403, 0.01  , 1.    ]]], dtype=float32)

    Reference:
        Vaswani et al. 2017, §3.5.
    """

    def __init__(self, max_wavelength=10000.0, layout="interleaved", **kwargs):
        super().__init__(**kwargs)
        require(one_of(("interleaved", "halves"), layout=layout))
        self.supports_masking = True
        self.max_wavelength = max_wavelength
        self.layout = layout

    def build(self, input_shape):
        check_rank("inputs", input_shape, one_position=True)
        if input_shape[-1] % 2:
            raise ValueError(f"`d_model` must be even. Received: d_model={input_shape[-1]}")

    def call(self, inputs, offset=0, positions=None):
        check_rank("inputs", inputs.shape, one_position=True)
        positions = _consecutive(inputs, offset) if positions is None else positions
        d_model = inputs.shape[-1]
        frequencies = self.max_wavelength ** (-ops.arange(0, d_model, 2, dtype="float32") / d_model)
        angles = ops.expand_dims(ops.cast(positions, "float32"), -1) * frequencies
        # Stacking on the last axis interleaves sines and cosines. Stacking on the axis before keeps them in halves.
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1 if self.layout == "interleaved" else -2)
        # (…, length, d_model / 2, 2) or (…, length, 2, d_model / 2) -> (…, length, d_model)
        encoding = ops.reshape(pairs, (*ops.shape(positions), d_model))
        return inputs + ops.cast(encoding, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "max_wavelength": self.max_wavelength, "layout": self.layout}


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositionalEmbedding(keras.layers.Layer):
    """x + table[position]. The implicit mask is passed on unchanged.

    Args:
        max_length: number of positions. A longer static length raises an error. Otherwise later positions use the
            last row of the table, since a compiled graph cannot raise errors.

    Call arguments:
        inputs: `(batch, length, d_model)`; or `(batch, d_model)`, one position per row.
        offset: position of the first input; an int or an int scalar tensor.
        positions: int `(batch, length)`, for rows that pack several sequences. Default: `offset`, `offset` + 1, ….

    Returns:
        The shape of `inputs`.

    Raises:
        ValueError: if `max_length` is not positive or less than the static length, or if `inputs` has the wrong rank or
            width.

    Example:

    >>> LearnedPositionalEmbedding(max_length=16)(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, Table 3 row E.
    """

    def __init__(self, max_length, **kwargs):
        super().__init__(**kwargs)
        require(at_least(1, max_length=max_length))
        self.supports_masking = True
        self.max_length = max_length

    def build(self, input_shape):
        check_rank("inputs", input_shape, one_position=True)
        d_model = input_shape[-1]
        initializer = keras.initializers.RandomNormal(stddev=d_model**-0.5)
        self.embeddings = self.add_weight((self.max_length, d_model), initializer, name="embeddings")

    def call(self, inputs, offset=0, positions=None):
        check_rank("inputs", inputs.shape, one_position=True)
        check_width("inputs", inputs.shape, self.embeddings.shape[-1])
        length = _length(inputs)
        if positions is None and isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"The length of `inputs` must be at most `max_length`={self.max_length}. Received: length={length}"
            )
        positions = _consecutive(inputs, offset) if positions is None else positions
        return inputs + ops.take(self.embeddings, ops.minimum(positions, self.max_length - 1), axis=0)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}


def _consecutive(inputs, offset):
    return ops.arange(_length(inputs), dtype="int32") + ops.cast(offset, "int32")


def _length(inputs):
    return 1 if len(inputs.shape) == 2 else ops.shape(inputs)[1]
