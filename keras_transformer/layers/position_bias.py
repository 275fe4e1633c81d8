"""Position schemes that add a bias to the attention scores or mask them: ALiBi, T5's buckets, a sliding window."""

import math

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import counts, require
from keras_transformer.layers.position_schemes import PositionScheme, distances


@keras.saving.register_keras_serializable(package="keras_transformer")
class ALiBi(PositionScheme):
    """Attention with linear biases: adds -slope · |distance| to the scores, with a fixed slope for each head.

    With h heads the slopes are 2^(-8/h), 2^(-16/h), …, 2^(-8) if h is a power of two. Otherwise they are those of the
    largest power of two n below h, and then every other slope of 2n heads. Models run on texts longer than those of
    their training. Without a causal mask the bias is symmetric, for encoders.

    Args:
        **kwargs: arguments of `keras.layers.Layer`, such as `name` and `dtype`.

    Example:

    >>> from keras_transformer.layers import MultiHeadAttention
    >>> attention = MultiHeadAttention(d_model=12, num_heads=2, positions=ALiBi())
    >>> attention(np.zeros((2, 5, 12), "float32"), use_causal_mask=True).shape
    TensorShape([2, 5, 12])
    >>> positions = np.arange(3)
    >>> attention.positions[0].attention_bias(positions, positions).numpy()[0, 0]  # head 0, slope 1/16
    array([[-0.    , -0.0625, -0.125 ],
           [-0.0625, -0.    , -0.0625],
           [-0.125 , -0.0625, -0.    ]], dtype=float32)

    Reference:
        Press et al. 2022, "Train Short, Test Long", §3.
    """

    def build(self, heads_shape):
        self.num_heads = heads_shape[1]

    def attention_bias(self, query_positions, key_positions):
        slopes = _alibi_slopes(self.num_heads).reshape((1, -1, 1, 1)).astype("float32")
        distance = ops.cast(ops.abs(distances(query_positions, key_positions)), "float32")
        # (1, num_heads, 1, 1) · (query_length, key_length) -> (1, num_heads, query_length, key_length)
        return ops.multiply(-slopes, distance)


@keras.saving.register_keras_serializable(package="keras_transformer")
class RelativePositionBias(PositionScheme):
    """T5's relative position bias: adds table[bucket(distance), head] to the scores.

    Half of the buckets hold one distance each: 0, 1, 2, …. The other half hold ranges that grow logarithmically up to
    `max_distance`; longer distances share the last bucket. T5 does not divide the scores by sqrt(d_k), and its layers
    share the table of the first.

    Names here -> transformers: `num_buckets` -> `relative_attention_num_buckets`; `max_distance` ->
    `relative_attention_max_distance`.

    Args:
        num_buckets: number of buckets.
        max_distance: from this distance on, all keys are in the last bucket.
        bidirectional: whether keys before and after the query have separate buckets, half of `num_buckets` each, for
            encoders. Otherwise all keys after the query are in bucket 0, for causal decoders.
        embeddings_initializer: initializer of the table `(num_buckets, num_heads)`.

    Raises:
        ValueError: if a number is not an integer; if `num_buckets` is below 2, or with `bidirectional` below 4 or
            odd; or if `max_distance` is not above the number of buckets that hold one distance.

    Example:

    >>> from keras_transformer.layers import MultiHeadAttention
    >>> attention = MultiHeadAttention(d_model=12, num_heads=3, positions=RelativePositionBias(num_buckets=8))
    >>> attention(np.zeros((2, 5, 12), "float32")).shape
    TensorShape([2, 5, 12])

    Reference:
        Raffel et al. 2020, "Exploring the Limits of Transfer Learning", §2.1.
    """

    def __init__(
        self,
        num_buckets=32,
        max_distance=128,
        bidirectional=True,
        embeddings_initializer="random_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        require(counts(4 if bidirectional else 2, num_buckets=num_buckets), counts(1, max_distance=max_distance))
        if bidirectional and num_buckets % 2:
            raise ValueError(f"`num_buckets` must be even if `bidirectional`. Received: num_buckets={num_buckets}")
        exact = num_buckets // (4 if bidirectional else 2)
        if max_distance <= exact:
            raise ValueError(
                f"`max_distance` must be above {exact}, the number of buckets that hold one distance. "
                f"Received: max_distance={max_distance}, num_buckets={num_buckets}"
            )
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, heads_shape):
        # Without autocast, the table of a mixed policy is not rounded to half precision.
        self.embeddings = self.add_weight(
            (self.num_buckets, heads_shape[1]), self.embeddings_initializer, name="embeddings", autocast=False
        )

    def attention_bias(self, query_positions, key_positions):
        furthest = self.max_distance
        buckets = _distance_buckets(self.num_buckets, furthest, self.bidirectional)
        clipped = ops.clip(distances(query_positions, key_positions), -furthest, furthest)
        # (num_buckets, num_heads) -> (2 * furthest + 1, num_heads) -> (query_length, key_length, num_heads). Both take
        # rows of a matrix, which PyTorch can export to ONNX.
        bias = ops.take(ops.take(self.embeddings, buckets, axis=0), clipped + furthest, axis=0)
        bias = ops.transpose(ops.cast(bias, "float32"), (2, 0, 1))  # (num_heads, query_length, key_length)
        return ops.expand_dims(bias, 0)


@keras.saving.register_keras_serializable(package="keras_transformer")
class SlidingWindow(PositionScheme):
    """A mask of the keys at a distance below `size`: the query's own position and the `size` - 1 positions before it.

    Without a causal mask it also includes the `size` - 1 positions after it, for encoders. A cache keeps all keys.

    Args:
        size: number of positions up to the query's own, included, to which a query attends.

    Raises:
        ValueError: if `size` is not a positive integer.

    Example:

    >>> from keras_transformer.layers import MultiHeadAttention, RotaryPositions
    >>> attention = MultiHeadAttention(d_model=12, num_heads=3, positions=[RotaryPositions(), SlidingWindow(64)])
    >>> attention(np.zeros((2, 5, 12), "float32"), use_causal_mask=True).shape
    TensorShape([2, 5, 12])
    >>> SlidingWindow(2).attention_bias(np.arange(4), np.arange(4)).numpy().astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 0],
           [0, 1, 1, 1],
           [0, 0, 1, 1]])

    Reference:
        Beltagy, Peters & Cohan 2020, "Longformer", §3.1; causal: Jiang et al. 2023, "Mistral 7B", §2.
    """

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        require(counts(1, size=size))
        self.size = size

    def attention_bias(self, query_positions, key_positions):
        return ops.abs(distances(query_positions, key_positions)) < self.size  # (query_length, key_length)


def _alibi_slopes(num_heads):
    """Float64 `(num_heads,)`."""
    power = 2 ** int(math.log2(num_heads))
    slopes, more = (2.0 ** (-8 / count * np.arange(1, count + 1)) for count in (power, 2 * power))
    return np.concatenate([slopes, more[::2][: num_heads - power]])


def _distance_buckets(num_buckets, max_distance, bidirectional):
    """The bucket of each distance from -max_distance to max_distance: int32 `(2 * max_distance + 1,)`."""
    signed = np.arange(-max_distance, max_distance + 1)  # Positive: the key is before the query.
    distance = np.abs(signed) if bidirectional else np.maximum(signed, 0)
    count = num_buckets // 2 if bidirectional else num_buckets
    exact = count // 2
    # In float32, as in T5: it decides the bucket of a distance at the border of two.
    growth = np.log(np.maximum(distance, 1).astype("float32") / exact) / math.log(max_distance / exact)
    logarithmic = np.minimum(exact + (growth * (count - exact)).astype("int32"), count - 1)
    buckets = np.where(distance < exact, distance, logarithmic)
    return (buckets + (count if bidirectional else 0) * (signed < 0)).astype("int32")
