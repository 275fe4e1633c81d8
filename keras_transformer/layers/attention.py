"""Scaled dot-product attention and its multi-head layer."""

import math

import keras
import numpy as np
from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer import masks
from keras_transformer.cache import KeyValue
from keras_transformer.checks import at_least, one_of, positive, require, within
from keras_transformer.layers.checks import check_attention_inputs, check_no_masks
from keras_transformer.layers.fused_attention import fused_attention, is_fused
from keras_transformer.layers.parts import claim
from keras_transformer.layers.position_schemes import as_schemes, bias_and_mask, process_heads
from keras_transformer.layers.projections import Projections

#: The last axis. For a Python int, `ops.softmax` warns if the axis has length 1. A single key is common in decoding.
_LAST = np.int64(-1)

#: Names of the projections, for `use_bias`.
_PROJECTIONS = ("query", "key", "value", "output")


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None, bias=None, scale=None, soft_cap=None):
    """softmax(Q Kᵀ / √d_k) V. The softmax is computed in float32 for any input dtype.

    The output is zero for a query whose keys are all masked. With `soft_cap` c, the softmax is that of
    c tanh(S / c), where S are the scores, so that no score is outside of (-c, c).

    Args:
        query: `(batch, num_heads, query_length, d_k)`.
        key: `(batch, num_kv_heads, key_length, d_k)`. `num_heads` must be a multiple of `num_kv_heads`. Query head h
            uses head h // (num_heads / num_kv_heads) of the keys and values.
        value: `(batch, num_kv_heads, key_length, d_v)`.
        mask: boolean (`True` = may be attended) or integers 0 and 1. Broadcasts to `(batch, num_heads,
            query_length, key_length)`. Default: `None`, no mask.
        dropout: callable that is applied to the attention weights. Default: `None`, no dropout.
        bias: float, added to the scaled scores in float32 before masking. Broadcasts like `mask`. Default: `None`.
        scale: factor of Q Kᵀ. Default: 1 / √d_k.
        soft_cap: bound of the scores. Default: `None`, no bound.

    Returns:
        Output `(batch, num_heads, query_length, d_v)` in the dtype of `value`, and attention weights `(batch,
        num_heads, query_length, key_length)` in float32, before dropout.

    Raises:
        ValueError: if `mask` has a float dtype, or if the number of query heads is not a multiple of that of the keys.

    Reference:
        Vaswani et al. 2017, §3.2.1, equation 1. Fewer heads of keys and values: Ainslie et al. 2023, "GQA", §2.2.
        `soft_cap`: Gemma Team 2024, "Gemma 2", §2.
    """
    query = query * ops.cast(key.shape[-1] ** -0.5 if scale is None else scale, query.dtype)
    # (batch, heads, query_length, d_k) · (batch, heads, d_k, key_length) -> (batch, heads, query_length, key_length)
    scores = ops.cast(_matmul_in_groups(query, ops.transpose(key, (0, 1, 3, 2))), "float32")
    if soft_cap is not None:
        scores = ops.tanh(scores / soft_cap) * soft_cap
    if bias is not None:
        scores = scores + ops.cast(bias, "float32")
    if mask is not None:
        mask = masks.as_boolean("`mask`", mask)
        scores = ops.where(mask, scores, ops.cast(-3e38, "float32"))  # Finite: a row of -inf would give NaN.
    weights = ops.softmax(scores, axis=_LAST)
    if mask is not None:
        weights = weights * ops.cast(ops.any(mask, axis=-1, keepdims=True), "float32")
    dropped = weights if dropout is None else dropout(weights)
    return _matmul_in_groups(ops.cast(dropped, value.dtype), value), weights


def _matmul_in_groups(x, y):
    """Computes x · y per head. Groups of consecutive heads of x share a head of y, which is not copied for them."""
    heads, kv_heads = x.shape[1], y.shape[1]
    if kv_heads in (heads, None):  # A traced function may not know the heads of a cache that it is given.
        return ops.matmul(x, y)
    if heads % kv_heads:
        raise ValueError(
            "The number of query heads must be a multiple of the number of key and value heads. "
            f"Received: {heads} query heads, {kv_heads} key and value heads"
        )
    batch, _, rows, width = ops.shape(x)
    # The heads of a group become rows: (batch, heads, rows, width) -> (batch, kv_heads, heads per group * rows, width)
    folded = ops.reshape(x, (batch, kv_heads, heads // kv_heads * rows, width))
    # (batch, kv_heads, heads per group * rows, columns) -> (batch, heads, rows, columns)
    return ops.reshape(ops.matmul(folded, y), (batch, heads, rows, ops.shape(y)[3]))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(Projections):
    """Concat(head_1, …, head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Names here -> paper: `num_heads` -> h; `query`, `key`, `value` -> Q, K, V. Differences from
    `keras.layers.MultiHeadAttention`: each projection is one `Dense` layer for all heads, `d_k` and `d_v` have
    defaults, and decoding can use a cache.

    With fewer `num_kv_heads`, several query heads share one head of keys and values (grouped-query attention; with one
    head, multi-query attention): W_i^K and W_i^V are those of group i // (h / `num_kv_heads`), and the cache
    is smaller by this factor.

    Masking: keys whose mask is `False` are not attended to. The mask of the query is passed on to the next layer but
    not applied. The output is zero, before the output bias, for a query whose keys are all masked.

    Args:
        d_model: width of the output.
        num_heads: number of attention heads.
        d_k: width of one head's queries and keys. Default: `d_model / num_heads`.
        d_v: width of one head's values. Default: `d_model / num_heads`.
        dropout: dropout rate on the attention weights.
        use_bias: whether the four projections have biases; or the names of those that have, among `"query"`, `"key"`,
            `"value"` and `"output"`.
        num_kv_heads: number of heads of keys and values, of which `num_heads` is a multiple. Default: `num_heads`.
        scale: factor of the scores Q Kᵀ. Default: 1 / √d_k.
        soft_cap: bound c of the scores S, which become c tanh(S / c). Default: `None`, no bound.
        positions: a `PositionScheme`, such as `RotaryPositions`, or a list of them, which apply in turn. With schemes
            the layer computes self-attention only. Default: `None`, no scheme.
        kernel_initializer: initializer of the kernels. Each kernel gets an initializer of its own, with a seed
            derived from that of the initializer or from `seed`.
        bias_initializer: initializer of the biases, likewise.
        kernel_regularizer: regularizer of the kernels.
        seed: int, for equal initial weights and dropout in each run. Default: seeds are drawn from Python's `random`
            module.

    Call arguments:
        query: `(batch, query_length, any)`. With a cache or a projected `value` also `(batch, any)`, one position
            per row. With a projected `value`, the batch size of `query` may be n times that of `value`: each row of
            `value` is then shared by n consecutive rows of `query`, such as the beams of a sentence.
        value: `(batch, key_length, any)`; or `None` for self-attention; or a `KeyValue` from `project`, to attend to
            one memory in several calls.
        key: `(batch, key_length, any)`. Default: `value`.
        query_mask: boolean `(batch, query_length)`, filled by Keras. In self-attention the default of `value_mask`.
        value_mask: boolean `(batch, key_length)`, filled by Keras.
        key_mask: boolean `(batch, key_length)`. Default: `value_mask`.
        attention_mask: boolean (`True` = may be attended) or integers 0 and 1. Shape `(query_length, key_length)`,
            `(batch, query_length, key_length)` or `(batch, num_heads, query_length, key_length)`; axes of size 1
            broadcast.
        use_causal_mask: whether to mask the keys after the position of each query. Unfilled positions of a cache are
            always masked.
        cache: `KeyValue` of earlier positions, for self-attention. Implicit masks and `query_mask` cover only the new
            positions and are not applied. Pass `attention_mask` if earlier positions contain padding.
        offset: position of the first query, for the causal mask and the cache: the number of positions in the cache.
        return_attention_scores: whether to also return the attention weights.
        attention_bias: a bias that is added to the scaled scores, or a mask, as `PositionScheme.attention_bias` returns
            it, such as one bias for several layers. With mixed precision, Keras casts a bias to half precision first.

    Returns:
        Output `(batch, query_length, d_model)`, or `(batch, d_model)`. With `return_attention_scores` also the weights
        `(batch, num_heads, query_length, key_length)`; n rows that share keys count as n query positions of one row.
        With `cache` also the updated cache, last.

    Raises:
        ValueError: if a size, `scale` or `soft_cap` is not positive, if the rate is not in [0, 1], if `use_bias` has an
            unknown name, if `num_heads` is not a multiple of `num_kv_heads`, if `d_model` is not a multiple of
            `num_heads` and `d_k` or `d_v` is not given, or if `positions` are not schemes. In a call: if `query`,
            `value`, `key` or `attention_bias` has the wrong rank, or a mask has a float dtype; if `key` is given
            beside a projected `value`, or `value_mask` or `key_mask` beside a cache, or `value` or `key` to an
            attention with `positions`.

    Example:

    >>> x = np.zeros((2, 5, 12), "float32")
    >>> layer = MultiHeadAttention(d_model=12, num_heads=3)
    >>> layer(x, use_causal_mask=True).shape                    # self-attention
    TensorShape([2, 5, 12])
    >>> layer(x, np.zeros((2, 7, 12), "float32")).shape         # cross-attention
    TensorShape([2, 5, 12])
    >>> grouped = MultiHeadAttention(d_model=12, num_heads=6, num_kv_heads=2)
    >>> grouped(x).shape
    TensorShape([2, 5, 12])
    >>> grouped.empty_cache(batch_size=2, max_length=5).key.shape
    TensorShape([2, 2, 0, 2])

    Reference:
        Vaswani et al. 2017, §3.2.2. One head of keys and values: Shazeer 2019, "Fast Transformer Decoding", §3.
        Groups: Ainslie et al. 2023, "GQA", §2.2. `soft_cap`: Gemma Team 2024, "Gemma 2", §2.
    """

    def __init__(
        self,
        d_model,
        num_heads,
        d_k=None,
        d_v=None,
        dropout=0.0,
        use_bias=True,
        num_kv_heads=None,
        scale=None,
        soft_cap=None,
        positions=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(kernel_initializer, bias_initializer, kernel_regularizer, seed, **kwargs)
        require(
            at_least(1, d_model=d_model, num_heads=num_heads, d_k=d_k, d_v=d_v, num_kv_heads=num_kv_heads),
            within("[0, 1]", dropout=dropout),
            positive(scale=scale, soft_cap=soft_cap),
        )
        if None in (d_k, d_v) and d_model % num_heads:
            raise ValueError(
                "`d_model` must be a multiple of `num_heads` unless `d_k` and `d_v` are given. "
                f"Received: d_model={d_model}, num_heads={num_heads}"
            )
        if num_heads % (num_kv_heads or 1):
            raise ValueError(
                "`num_heads` must be a multiple of `num_kv_heads`. "
                f"Received: num_heads={num_heads}, num_kv_heads={num_kv_heads}"
            )
        self.supports_masking = True
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = d_k or d_model // num_heads
        self.d_v = d_v or d_model // num_heads
        self.dropout = dropout
        self.use_bias = _checked_biases(use_bias)
        self.num_kv_heads = num_kv_heads or num_heads
        self.scale = scale
        self.soft_cap = soft_cap
        self.positions = as_schemes(positions)
        self.query_projection = self._projection(num_heads * self.d_k, "query")
        self.key_projection = self._projection(self.num_kv_heads * self.d_k, "key")
        self.value_projection = self._projection(self.num_kv_heads * self.d_v, "value")
        self.output_projection = self._projection(d_model, "output")
        self.weights_dropout = self._dropout(dropout, "float32")
        for scheme in self.positions:
            claim(scheme, self)

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        self.query_projection.build(query_shape)
        self.key_projection.build(key_shape or value_shape)
        self.value_projection.build(value_shape)
        self.output_projection.build((*query_shape[:-1], self.num_heads * self.d_v))
        length = query_shape[1] if len(query_shape) == 3 else 1
        for scheme in self.positions:
            scheme.build((query_shape[0], self.num_heads, length, self.d_k))

    def __call__(self, query, *args, **kwargs):
        if self.positions:  # As with Keras's layer, `attention(x, x)` is self-attention.
            args = [None if x is query else x for x in args]
            kwargs = {name: None if x is query else x for name, x in kwargs.items()}
        return super().__call__(query, *args, **kwargs)

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
        attention_bias=None,
    ):
        check_attention_inputs(query, value, key, cache, is_self_attention=bool(self.positions))
        # Without a cache, the first query and the first key are at one position.
        offset = 0 if cache is None else offset
        if value is None:
            check_no_masks(cache, value_mask=value_mask, key_mask=key_mask)
            value, value_mask = query, query_mask if value_mask is None else value_mask
        projected = value if isinstance(value, KeyValue) else self.project(value, key)
        heads, projected = process_heads(self.positions, self._query_heads(query, value), projected, offset)
        if cache is None:
            if key is None:
                key, key_mask = value, value_mask if key_mask is None else key_mask
            key_mask = masks.resolve(key_mask, key)
            key_mask = masks.resolve(value_mask, value) if key_mask is None else key_mask
        else:
            projected, key_mask = cache.append(projected, offset), None
        causal = self._position_mask(query, projected, cache, offset, use_causal_mask)
        mask = masks.attention_mask(key_mask, attention_mask, causal)
        bias, mask = bias_and_mask(self.positions, attention_bias, mask, heads, projected.key, offset)
        # One query per row of a cache has no matrix of scores that fused attention could save.
        has_steps = cache is not None or isinstance(value, KeyValue)
        attended, scores = self._attend(heads, projected, mask, bias, return_attention_scores or has_steps)
        output = self.output_projection(self._merge_heads(attended, query, value))
        results = (output, *([scores] if return_attention_scores else ()), *([] if cache is None else [projected]))
        return results if len(results) > 1 else output

    def project(self, value, key=None) -> KeyValue:
        """Projects keys and values once, for several calls that attend to the same memory.

        Call it inside a layer or a model method. It does not accept symbolic Keras tensors.

        Args:
            value: `(batch, key_length, any)`.
            key: `(batch, key_length, any)`. Default: `value`.

        Returns:
            `KeyValue` of `(batch, num_kv_heads, key_length, d_k)` and `(batch, num_kv_heads, key_length, d_v)`.
        """
        key = value if key is None else key
        return KeyValue(
            self._split_heads(self.key_projection(key), key, self.num_kv_heads, self.d_k),
            self._split_heads(self.value_projection(value), value, self.num_kv_heads, self.d_v),
        )

    def empty_cache(self, batch_size, max_length) -> KeyValue:
        """Makes an empty cache of keys and values, to decode step by step.

        A call with `cache` and `offset`, the number of positions in the cache, returns the updated cache.

        Args:
            batch_size: number of rows.
            max_length: maximum number of positions. JAX allocates all of them. On other backends the cache grows.

        Returns:
            `KeyValue` of `(batch_size, num_kv_heads, time, d_k)` and `(batch_size, num_kv_heads, time, d_v)`. `time` is
            `max_length` on JAX, and 0 on other backends.
        """
        return KeyValue.empty(batch_size, self.num_kv_heads, self.d_k, self.d_v, max_length, self.compute_dtype)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:-1], self.d_model)

    # The number of outputs depends on the arguments, so Keras infers symbolic outputs by tracing `call`.
    compute_output_spec = keras.Operation.compute_output_spec

    def _projection(self, units, name):
        return self._dense(units, name, name in self.use_bias if isinstance(self.use_bias, tuple) else self.use_bias)

    def _split_heads(self, x, inputs, num_heads, width):
        """Splits a projection of `inputs` into heads."""
        if _is_one_position(x):  # (rows, heads * width) -> (rows, heads, 1, width): no transpose needed.
            return ops.reshape(x, (-1, num_heads, 1, width))
        # Not -1 for the length: it cannot be inferred from a batch without rows. Not the shape of `x`: tf2onnx removes
        # the reshape at the end of a projection without bias, and would then read the shape of another tensor.
        batch, length = ops.shape(inputs)[:2]
        return _heads_first(x, batch, length, num_heads, width)

    def _query_heads(self, query, value):
        projection = self.query_projection(query)
        if not isinstance(value, KeyValue):
            return self._split_heads(projection, query, self.num_heads, self.d_k)
        # Rows that share keys become query positions of one row.
        batch, *rows = sizes = ops.shape(value.key)[0], *ops.shape(query)[:-1]
        # -1 cannot be inferred from a batch without rows. In a graph, a search has rows in each step.
        count = math.prod(rows) // max(batch, 1) if all(isinstance(size, int) for size in sizes) else -1
        return _heads_first(projection, batch, count, self.num_heads, self.d_k)

    def _merge_heads(self, heads, query, value):
        if not _is_one_position(query) or isinstance(value, KeyValue):
            heads = ops.transpose(heads, (0, 2, 1, 3))  # (batch, query_length, heads, d_v)
        lengths = (-1,) if _is_one_position(query) else ops.shape(query)[:2]
        # (batch, query_length, heads, d_v) -> (batch, query_length, heads * d_v). One position of self-attention:
        # (rows, heads, 1, d_v) -> (rows, heads * d_v).
        return ops.reshape(heads, (*lengths, self.num_heads * self.d_v))

    def _attend(self, heads, projected: KeyValue, mask, bias, is_plain):
        """Runs plain or fused attention. The second result is the attention weights, or `None` if it was fused."""
        has_weights = is_plain or self.dropout or self.soft_cap is not None
        if not has_weights and is_fused(heads, projected.value):
            return fused_attention(heads, *projected, mask, bias, self.scale), None
        dropout = self.weights_dropout if self.dropout else None
        return scaled_dot_product_attention(heads, *projected, mask, dropout, bias, self.scale, self.soft_cap)

    def _position_mask(self, query, projected, cache, offset, use_causal_mask):
        query_length = 1 if _is_one_position(query) else ops.shape(query)[1]
        key_length = ops.shape(projected.key)[2]
        # An allocated cache also has unfilled positions. They come after the newest query.
        has_unfilled = cache is not None and not kv_cache.GROWS
        # The newest position may attend to every filled position, so it needs no mask in a growing cache.
        is_newest = cache is not None and _is_one_position(query)
        if use_causal_mask and (has_unfilled or not is_newest):
            return masks.causal_mask(query_length, key_length, offset)
        return masks.causal_mask(1, key_length, offset + query_length - 1) if has_unfilled else None


def _heads_first(x, batch, length, num_heads, width):
    """Reshapes (…, heads * width) to (batch, heads, length, width)."""
    # tf2onnx replaces a transpose of an axis of length 1 by a reshape, which would read the shape of another tensor.
    if num_heads == 1:
        return ops.reshape(x, (batch, 1, length, width))
    heads = ops.reshape(x, (batch, length, num_heads, width))  # (batch, length, heads, width)
    return ops.transpose(heads, (0, 2, 1, 3))  # (batch, heads, length, width)


def _checked_biases(use_bias):
    """`use_bias` of an attention: a bool, or a tuple of names of projections."""
    if isinstance(use_bias, str):
        raise ValueError(f"`use_bias` must be a bool or a list of names. Received: use_bias={use_bias!r}")
    if not isinstance(use_bias, list | tuple | set | frozenset):
        return use_bias
    require(*(one_of(_PROJECTIONS, use_bias=name) for name in use_bias))
    return tuple(name for name in _PROJECTIONS if name in use_bias)


def _is_one_position(x):
    # The rank decides, not a length of 1: exporters trace dynamic lengths with that length.
    return len(x.shape) == 2
