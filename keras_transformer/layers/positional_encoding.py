"""Positional encodings that are added to embeddings: sinusoidal or learned."""

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.checks import at_least, counts, one_of, require
from keras_transformer.layers.checks import check_rank, check_width
from keras_transformer.layers.configured import Configured
from keras_transformer.layers.seeds import seeded_initializer


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


def consecutive_positions(length, offset):
    """Computes the positions `offset`, `offset` + 1, …: int32 `(length,)`."""
    return ops.arange(length, dtype="int32") + ops.cast(offset, "int32")


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionalEncoding(Configured):
    """x + PE with PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(same).

    Any length is supported. The angles are computed in float32 under every dtype policy. The implicit mask is passed
    on unchanged.

    Args:
        max_wavelength: the constant 10000 in the formula.
        layout: `"interleaved"`, as in the formula, or `"halves"`, all sines before all cosines:
            PE(pos, i) = sin(pos / 10000^(2i/d_model)), PE(pos, d_model/2 + i) = cos(same).
        first_position: number that is added to all positions, such as 2 if a checkpoint counts from 2.

    Call arguments:
        inputs: `(batch, length, d_model)` with an even `d_model`; or `(batch, d_model)`, one position per row.
        offset: position of the first input; an int or an int scalar tensor.
        positions: int `(batch, length)`, for rows that pack several sequences. Default: `offset`, `offset` + 1, ….

    Returns:
        The shape of `inputs`.

    Raises:
        ValueError: if `layout` is unknown, `first_position` is negative, `d_model` is odd, or `inputs` has the wrong
            rank.

    Example:

    >>> PositionalEncoding()(np.zeros((1, 2, 4), "float32")).numpy().round(4)
    array([[[0.    , 1.    , 0.    , 1.    ],
            [0.8415, 0.5403, 0.01  , 1.    ]]], dtype=float32)

    Reference:
        Vaswani et al. 2017, §3.5.
    """

    def __init__(self, max_wavelength=10000.0, layout="interleaved", first_position=0, **kwargs):
        super().__init__(**kwargs)
        require(one_of(("interleaved", "halves"), layout=layout), counts(0, first_position=first_position))
        self.supports_masking = True
        self.max_wavelength = max_wavelength
        self.layout = layout
        self.first_position = first_position

    def build(self, input_shape):
        check_rank("inputs", input_shape, one_position=True)
        if input_shape[-1] % 2:
            raise ValueError(f"`d_model` must be even. Received: d_model={input_shape[-1]}")

    def call(self, inputs, offset=0, positions=None):
        check_rank("inputs", inputs.shape, one_position=True)
        positions = consecutive_positions(_length(inputs), offset) if positions is None else positions
        positions = _shifted(positions, self.first_position)
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


@keras.saving.register_keras_serializable(package="keras_transformer")
class LearnedPositionalEmbedding(Configured):
    """x + table[position]. The implicit mask is passed on unchanged.

    Args:
        max_length: number of positions. A longer static length raises an error. Otherwise later positions use the
            last row of the table, since a compiled graph cannot raise errors.
        first_position: row of the table for position 0, such as 2 for checkpoints whose first rows are not positions.
            The table has `first_position + max_length` rows.
        embeddings_initializer: initializer of the table. Default: a normal distribution of standard deviation
            1 / √d_model.
        seed: int, seed of the initializer if that has none. Default: drawn from Python's `random` module.

    Call arguments:
        inputs: `(batch, length, d_model)`; or `(batch, d_model)`, one position per row.
        offset: position of the first input; an int or an int scalar tensor.
        positions: int `(batch, length)`, for rows that pack several sequences. Default: `offset`, `offset` + 1, ….

    Returns:
        The shape of `inputs`.

    Raises:
        ValueError: if `max_length` is not positive or less than the static length, if `first_position` is negative, or
            if `inputs` has the wrong rank or width.

    Example:

    >>> LearnedPositionalEmbedding(max_length=16)(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, Table 3 row E.
    """

    def __init__(self, max_length, first_position=0, embeddings_initializer=None, seed=None, **kwargs):
        super().__init__(**kwargs)
        require(at_least(1, max_length=max_length), counts(0, first_position=first_position))
        self.supports_masking = True
        self.max_length = max_length
        self.first_position = first_position
        self.embeddings_initializer = embeddings_initializer
        self.seed = seed

    def build(self, input_shape):
        check_rank("inputs", input_shape, one_position=True)
        d_model = input_shape[-1]
        initializer = self.embeddings_initializer or keras.initializers.RandomNormal(stddev=d_model**-0.5)
        rows = self.first_position + self.max_length
        self.embeddings = self.add_weight(
            (rows, d_model), seeded_initializer(initializer, self.seed), name="embeddings"
        )

    def call(self, inputs, offset=0, positions=None):
        check_rank("inputs", inputs.shape, one_position=True)
        check_width("inputs", inputs.shape, self.embeddings.shape[-1])
        length = _length(inputs)
        if positions is None and isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"The length of `inputs` must be at most `max_length`={self.max_length}. Received: length={length}"
            )
        positions = consecutive_positions(_length(inputs), offset) if positions is None else positions
        rows = _shifted(ops.minimum(positions, self.max_length - 1), self.first_position)
        return inputs + ops.take(self.embeddings, rows, axis=0)

    def compute_output_shape(self, input_shape):
        return input_shape


def _shifted(positions, first_position):
    return positions + first_position if first_position else positions  # No addition of 0 in a graph.


def _length(inputs):
    return 1 if len(inputs.shape) == 2 else ops.shape(inputs)[1]
