"""Normalization of queries and keys in self-attention."""

import keras
from keras import ops

from keras_transformer.checks import positive, require
from keras_transformer.layers.position_schemes import PositionScheme


@keras.saving.register_keras_serializable(package="keras_transformer")
class QKNorm(PositionScheme):
    """RMS normalization of each query and key: x / sqrt(mean(x²) + epsilon) · scale, over the d_k entries of a head.

    It bounds the attention scores, which stabilizes training. Queries and keys have one learned scale `(d_k,)` each,
    shared by the heads. The computation is in float32 under every dtype policy. In a list of schemes, put it before
    `RotaryPositions`, as in Qwen3 and Gemma 3.

    Args:
        epsilon: added to the mean square.

    Raises:
        ValueError: if `epsilon` is not positive.

    Example:

    >>> from keras_transformer.layers import MultiHeadAttention, RotaryPositions
    >>> attention = MultiHeadAttention(d_model=12, num_heads=3, positions=[QKNorm(), RotaryPositions()])
    >>> attention(np.zeros((2, 5, 12), "float32")).shape
    TensorShape([2, 5, 12])

    Reference:
        Henry et al. 2020, "Query-Key Normalization for Transformers"; with RMS norms and learned scales: Yang et al.
        2025, "Qwen3 Technical Report", §2.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        require(positive(epsilon=epsilon))
        self.epsilon = epsilon

    def build(self, heads_shape):
        # Without autocast, the scales of a mixed policy are not rounded to half precision.
        self.query_scale, self.key_scale = (
            self.add_weight((heads_shape[-1],), "ones", name=name, autocast=False)
            for name in ("query_scale", "key_scale")
        )

    def process_heads(self, query, key, positions):
        return self._normalize(query, self.query_scale), self._normalize(key, self.key_scale)

    def _normalize(self, heads, scale):
        x = ops.cast(heads, "float32")
        mean_square = ops.mean(ops.square(x), axis=-1, keepdims=True)
        normed = x * ops.rsqrt(mean_square + self.epsilon) * ops.cast(scale, "float32")
        return ops.cast(normed, heads.dtype)
