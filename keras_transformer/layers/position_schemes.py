"""The base class of position schemes of self-attention, and how an attention applies its schemes."""

import keras
from keras import ops

from keras_transformer.cache import KeyValue
from keras_transformer.layers.configured import Configured
from keras_transformer.layers.positional_encoding import consecutive_positions


@keras.saving.register_keras_serializable(package="keras_transformer")
class PositionScheme(Configured):
    """What positions change in a self-attention. The base class changes nothing.

    A subclass overrides one or both of the methods below, which `MultiHeadAttention(positions=…)` calls. A scheme is
    not called itself. It makes its weights in `build(heads_shape)`; `heads_shape` is the shape of the query heads,
    `(batch, num_heads, length, d_k)`. A scheme belongs to one attention. Arguments are attributes of the same names,
    which `get_config` reads.

    Args:
        **kwargs: arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Example:

    >>> from keras_transformer.layers import MultiHeadAttention
    >>> @keras.saving.register_keras_serializable(package="example")
    ... class Recency(PositionScheme):
    ...     '''Lowers the score of a key by its squared distance from the query.'''
    ...
    ...     def attention_bias(self, query_positions, key_positions):
    ...         distance = query_positions[:, None] - key_positions  # (query_length, key_length)
    ...         return -0.1 * keras.ops.cast(distance**2, "float32")
    >>> attention = MultiHeadAttention(d_model=12, num_heads=3, positions=Recency())
    >>> attention(np.zeros((2, 5, 12), "float32")).shape
    TensorShape([2, 5, 12])

    Reference:
        Dufter, Schmitt & Schütze 2022, "Position Information in Transformers: An Overview", §3.
    """

    def build(self, heads_shape):
        pass

    def get_build_config(self):
        """Returns `None`, because the attention of a loaded scheme builds it."""
        return None

    def process_heads(self, query, key, positions):
        """Changes queries and keys that are at the same positions. A cache contains the changed keys.

        Args:
            query: `(batch, num_heads, length, d_k)`.
            key: `(batch, num_kv_heads, length, d_k)`. The number of heads may differ from that of `query`.
            positions: int `(length,)`.

        Returns:
            `query` and `key` of the same shapes and dtypes.
        """
        return query, key

    def attention_bias(self, query_positions, key_positions):
        """Computes what is added to the scaled scores, or which keys may be attended to.

        Args:
            query_positions: int `(query_length,)`.
            key_positions: int `(key_length,)`.

        Returns:
            A finite float32 bias or a boolean mask (`True` = may be attended), or `None`. Shape `(query_length,
            key_length)` or `(batch, num_heads, query_length, key_length)`; axes of size 1 broadcast.
        """
        return None


def distances(query_positions, key_positions):
    """Computes the position of each query minus that of each key.

    Args:
        query_positions: int `(query_length,)`.
        key_positions: int `(key_length,)`.

    Returns:
        Int `(query_length, key_length)`.
    """
    return ops.subtract(ops.expand_dims(query_positions, 1), key_positions)


def as_schemes(positions) -> list[PositionScheme]:
    """The schemes in the argument `positions` of an attention, which is `None`, a scheme or a list of schemes."""
    schemes = list(positions) if isinstance(positions, (list, tuple)) else [positions] * (positions is not None)
    if not all(isinstance(scheme, PositionScheme) for scheme in schemes):
        raise ValueError(f"`positions` must be a PositionScheme or a list of them. Received: positions={positions!r}")
    return schemes


def process_heads(schemes, query, projected: KeyValue, offset):
    """Applies the schemes in turn to queries and keys at positions `offset`, `offset` + 1, ….

    Args:
        schemes: list of `PositionScheme`.
        query: `(batch, num_heads, length, d_k)`.
        projected: `KeyValue` of the same positions.
        offset: position of the first query.

    Returns:
        `query` and `projected` with changed keys.
    """
    if not schemes:
        return query, projected
    key = projected.key
    positions = consecutive_positions(ops.shape(query)[2], offset)
    for scheme in schemes:
        query, key = scheme.process_heads(query, key, positions)
    return query, projected._replace(key=key)


def bias_and_mask(schemes, attention_bias, mask, query, key, offset):
    """Adds up the biases, and combines the masks with a logical AND.

    Args:
        schemes: list of `PositionScheme`.
        attention_bias: a bias or boolean mask as of a `PositionScheme`, or `None`.
        mask: boolean, broadcasts to `(batch, num_heads, query_length, key_length)`, or `None`.
        query: `(batch, num_heads, query_length, d_k)`, the first at position `offset`.
        key: `(batch, num_heads, key_length, d_k)`, the first at position 0.
        offset: position of the first query.

    Returns:
        The bias in float32 or `None`, and the mask or `None`.
    """
    parts = [attention_bias]
    if schemes:
        positions = consecutive_positions(ops.shape(query)[2], offset), consecutive_positions(ops.shape(key)[2], 0)
        parts += [scheme.attention_bias(*positions) for scheme in schemes]
    bias = None
    for part in parts:
        if part is None:
            continue
        if len(part.shape) not in (2, 4):
            raise ValueError(f"An attention bias must have rank 2 or 4. Received: shape={tuple(part.shape)}")
        if keras.backend.standardize_dtype(part.dtype) == "bool":
            mask = part if mask is None else ops.logical_and(mask, part)
        else:
            part = ops.cast(part, "float32")
            bias = part if bias is None else bias + part
    return bias, mask
