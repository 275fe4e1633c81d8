"""Scaled dot-product attention and its multi-head layer."""

import keras
from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer import masks
from keras_transformer.cache import KeyValue
from keras_transformer.layers.adaptation import Composite
from keras_transformer.layers.checks import check_rank, check_rates, check_sizes
from keras_transformer.layers.dropout import Dropout


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    """softmax(Q Kᵀ / √d_k) V, with the softmax in float32 whatever the inputs' dtype.

    A query that may attend to nothing gets zeros.

    Args:
        query: `(batch, num_heads, query_length, d_k)`.
        key: `(batch, num_heads, key_length, d_k)`.
        value: `(batch, num_heads, key_length, d_v)`.
        mask: boolean, `True` = may be attended, or integers 0 and 1; broadcasts to `(batch, num_heads,
            query_length, key_length)`; or `None`.
        dropout: callable applied to the attention weights, or `None`.

    Returns:
        Pair of the result `(batch, num_heads, query_length, d_v)` in the dtype of `value` and the
        attention weights `(batch, num_heads, query_length, key_length)` in float32, before dropout.

    Raises:
        ValueError: if `mask` is of a float dtype.

    Reference:
        Vaswani et al. 2017, §3.2.1, equation 1.
    """
    query = query * ops.cast(key.shape[-1] ** -0.5, query.dtype)
    scores = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32")
    if mask is not None:
        mask = masks.as_boolean("`mask`", mask)
        scores = ops.where(mask, scores, ops.cast(-3e38, "float32"))
    # Keras warns of a softmax over a single key, which is a common thing here.
    weights = ops.exp(ops.log_softmax(scores, axis=-1)) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)
    if mask is not None:
        weights = weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), "float32")
    dropped = weights if dropout is None else dropout(weights)
    return ops.matmul(ops.cast(dropped, value.dtype), value), weights


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(Composite):
    """Concat(head_1, …, head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Names here -> paper: `num_heads` -> h; `query`, `key`, `value` -> Q, K, V. Unlike
    `keras.layers.MultiHeadAttention` the projections are plain matrices of all heads side by side,
    `d_k` and `d_v` are free of the model's width, and there is a cache for decoding.

    Masking: keys whose mask is `False` never matter; the query's own mask is passed on and not
    applied. A query with nothing to attend to gets zeros (before the output bias).

    Args:
        d_model: width of the output.
        num_heads: attention heads.
        d_k: width of one head's queries and keys. Default: `d_model / num_heads`.
        d_v: width of one head's values. Default: `d_model / num_heads`.
        dropout: rate on the attention weights.
        use_bias: biases in the four projections.

    Call arguments:
        query: `(batch, query_length, any)`; or `(batch, any)`, one position of each row, where there is
            a cache or projected `value`. With the latter its batch may be a multiple n of theirs: n
            consecutive rows (the beams of a sentence) then share one row of keys.
        value: `(batch, key_length, any)`; `None` for self-attention; or the `KeyValue` that
            `project` made, where the same memory is attended again and again.
        key: `(batch, key_length, any)`. Default: `value`.
        query_mask: boolean `(batch, query_length)`, filled by Keras; the key mask of self-attention.
        value_mask: boolean `(batch, key_length)`, filled by Keras.
        key_mask: boolean `(batch, key_length)`. Default: `value_mask`.
        attention_mask: boolean, `True` = may be attended, or integers 0 and 1; broadcasts to `(batch,
            num_heads, query_length, key_length)`; of rank 3 it is `(batch, query_length, key_length)`.
        use_causal_mask: let queries attend to no later position.
        cache: `KeyValue` of earlier positions (self-attention). The implicit masks speak of the new
            positions only and are not applied; give `attention_mask` if earlier ones are padding.
        offset: position of the first query, for the causal mask and the cache.
        return_attention_scores: also return the attention weights.

    Returns:
        `(batch, query_length, d_model)`, or `(batch, d_model)`; followed by the weights `(batch, num_heads,
        query_length, key_length)` if asked for (n rows that share their keys stand as further query
        positions of one); followed by the grown cache if one was given.

    Raises:
        ValueError: if a size is not positive, the rate not in [0, 1], or `d_model` not a multiple of
            `num_heads` where a head's width is left to it; in a call, if `query`, `value` or `key` has
            another rank, or a mask is of a float dtype.

    Example:

    >>> x = np.zeros((2, 5, 12), "float32")
    >>> layer = MultiHeadAttention(d_model=12, num_heads=3)
    >>> layer(x, use_causal_mask=True).shape                    # self-attention
    TensorShape([2, 5, 12])
    >>> layer(x, np.zeros((2, 7, 12), "float32")).shape         # cross-attention
    TensorShape([2, 5, 12])

    Reference:
        Vaswani et al. 2017, §3.2.2.
    """

    def __init__(self, d_model, num_heads, d_k=None, d_v=None, dropout=0.0, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        check_sizes(d_model=d_model, num_heads=num_heads, d_k=d_k, d_v=d_v)
        check_rates(dropout=dropout)
        if None in (d_k, d_v) and d_model % num_heads:
            raise ValueError(
                "`d_model` must be a multiple of `num_heads` unless `d_k` and `d_v` are given. "
                f"Received: d_model={d_model}, num_heads={num_heads}"
            )
        self.supports_masking = True
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_k or d_model // num_heads
        self.d_v = d_v or d_model // num_heads
        self.dropout = dropout
        self.use_bias = use_bias
        self.query_projection = self._dense(num_heads * self.d_k, "query")
        self.key_projection = self._dense(num_heads * self.d_k, "key")
        self.value_projection = self._dense(num_heads * self.d_v, "value")
        self.output_projection = self._dense(d_model, "output")
        self.weights_dropout = Dropout(dropout, dtype="float32", name="dropout")

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        self.query_projection.build(query_shape)
        self.key_projection.build(key_shape or value_shape)
        self.value_projection.build(value_shape)
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.d_v))

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        use_causal_mask=False,
        cache=None,
        offset=0,
        return_attention_scores=False,
    ):
        _check_ranks(query, value, key, cache)
        if value is None:
            value, value_mask = query, query_mask
        projected = value if isinstance(value, KeyValue) else self.project(value, key)
        if cache is None:
            value_mask = masks.resolve(value_mask, value)
            key_mask = masks.resolve(key_mask, key)
            key_mask = value_mask if key_mask is None else key_mask
        else:
            projected, key_mask = kv_cache.append(cache, projected, offset), None
        heads = self._query_heads(query, value)
        causal = self._causal_mask(query, projected, cache, offset, use_causal_mask)
        mask = masks.attention_mask(key_mask, attention_mask, causal)
        dropout = self.weights_dropout if self.dropout else None
        attended, scores = scaled_dot_product_attention(heads, *projected, mask, dropout)
        output = self.output_projection(self._merge_heads(attended, query))
        results = (output, *([scores] if return_attention_scores else ()), *([] if cache is None else [projected]))
        return results if len(results) > 1 else output

    def project(self, value, key=None) -> KeyValue:
        """Keys and values of all heads, for calls that attend to the same memory repeatedly.

        For use inside a layer or a model's methods: no operation of a functional model by itself.

        Args:
            value: `(batch, key_length, any)`.
            key: `(batch, key_length, any)`. Default: `value`.

        Returns:
            `KeyValue` of `(batch, num_heads, key_length, d_k)` and `(batch, num_heads, key_length, d_v)`.
        """
        key = value if key is None else key
        return KeyValue(
            self._split_heads(self.key_projection(key), self.d_k),
            self._split_heads(self.value_projection(value), self.d_v),
        )

    def empty_cache(self, like, batch_size, max_length) -> KeyValue:
        """A cache for `batch_size` rows; see `keras_transformer.cache.empty`."""
        return kv_cache.empty(like, batch_size, self.num_heads, self.d_k, self.d_v, max_length, self.compute_dtype)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:-1], self.d_model)

    # What is returned depends on the arguments, so the symbolic outputs come from tracing `call`.
    compute_output_spec = keras.Operation.compute_output_spec

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_k": self.d_k,
            "d_v": self.d_v,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
        }

    def _dense(self, units, name):
        return keras.layers.Dense(units, use_bias=self.use_bias, dtype=self.dtype_policy, name=name)

    def _split_heads(self, x, width):
        if _is_one_position(x):  # It needs no transpose.
            return ops.reshape(x, (-1, self.num_heads, 1, width))
        # A length known only at run time is left to the reshape: tf2onnx would take the axes of another tensor.
        length = -1 if x.shape[1] is None else x.shape[1]
        heads = ops.reshape(x, (ops.shape(x)[0], length, self.num_heads, width))
        return ops.transpose(heads, (0, 2, 1, 3))

    def _query_heads(self, query, value):
        projection = self.query_projection(query)
        if not isinstance(value, KeyValue):
            return self._split_heads(projection, self.d_k)
        # Rows that share their keys stand as further query positions.
        heads = ops.reshape(projection, (ops.shape(value.key)[0], -1, self.num_heads, self.d_k))
        return ops.transpose(heads, (0, 2, 1, 3))

    def _merge_heads(self, heads, query):
        if heads.shape[2] != 1:
            heads = ops.transpose(heads, (0, 2, 1, 3))
        lengths = (-1,) if len(query.shape) == 2 else ops.shape(query)[:2]
        return ops.reshape(heads, (*lengths, self.num_heads * self.d_v))

    def _causal_mask(self, query, projected, cache, offset, use_causal_mask):
        query_length = 1 if _is_one_position(query) else ops.shape(query)[1]
        key_length = ops.shape(projected.key)[2]
        if cache is None or kv_cache.GROWS:
            # The newest position sees all that a growing cache holds.
            is_newest = cache is not None and _is_one_position(query)
            return masks.causal_mask(query_length, key_length, offset) if use_causal_mask and not is_newest else None
        if use_causal_mask:
            return masks.causal_mask(query_length, key_length, offset)
        return masks.causal_mask(1, key_length, offset + query_length - 1)  # What is filled so far.


def _check_ranks(query, value, key, cache):
    is_projected = isinstance(value, KeyValue)
    check_rank("query", query.shape, one_position=is_projected or cache is not None)
    for name, x in (("value", None if is_projected else value), ("key", key)):
        if x is not None:
            check_rank(name, x.shape, one_position=cache is not None)


def _is_one_position(x):
    return len(x.shape) == 2 or x.shape[1] == 1
