"""Fused attention, which does not keep the scores in memory, and the setting that chooses it."""

import keras
from keras import ops

from keras_transformer.checks import one_of, require

#: Backends with a fused `keras.ops.dot_product_attention`.
_BACKENDS = ("jax", "torch")
_IMPLEMENTATIONS = ("auto", "fused", "plain")

#: Score of a masked key, by dtype. Its sum with another score is finite, also in units of log 2, which kernels use.
_MASKED, _MASKED_IN_FLOAT16 = -1e9, -3e4

_implementation = "auto"


def set_attention_implementation(implementation):
    """Sets how every `MultiHeadAttention` of this process computes attention.

    Fused attention computes the same function and keeps no `(query_length, key_length)` matrix of scores in memory. It
    is `keras.ops.dot_product_attention`, for which the backend chooses a kernel. Results differ by rounding. With mixed
    precision, a bias of the scores is rounded to half precision.

    The setting is not part of a layer or model. A layer reads it when its call is traced, so set it before the first
    call of `fit`, `predict` or `generate`. A call uses plain attention under each setting

    - if it returns attention weights, has a cache, or attends to a projected memory, as in decoding;
    - if the layer has dropout of the attention weights or `soft_cap`;
    - on JAX, if `d_k` and `d_v` differ, on a TPU, or in float16 on a CPU;
    - on TensorFlow.

    Args:
        implementation: `"auto"`, the default at start: fused on a GPU, plain on other devices. `"fused"`: fused on CPUs
            too, which saves no memory there. `"plain"`: never fused.

    Raises:
        ValueError: if the value is none of these, or `"fused"` on a Keras backend other than JAX and PyTorch.

    Example:

    >>> set_attention_implementation("plain")
    >>> attention_implementation()
    'plain'
    >>> set_attention_implementation("auto")

    Reference:
        Dao et al. 2022, "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness".
    """
    global _implementation
    require(one_of(_IMPLEMENTATIONS, implementation=implementation))
    backend = keras.backend.backend()
    if implementation == "fused" and backend not in _BACKENDS:
        raise ValueError(
            "`implementation` must not be 'fused' on this Keras backend, only on jax and torch. "
            f"Received: implementation={implementation!r}, KERAS_BACKEND={backend}"
        )
    _implementation = implementation


def attention_implementation() -> str:
    """The value of `set_attention_implementation`, or else `"auto"`.

    Returns:
        `"auto"`, `"fused"` or `"plain"`.
    """
    return _implementation


def is_fused(query, value) -> bool:
    """Whether to use `fused_attention` for these heads, by the setting, the backend, the device and the widths.

    Args:
        query: `(batch, num_heads, query_length, d_k)`.
        value: `(batch, num_kv_heads, key_length, d_v)`.
    """
    backend = keras.backend.backend()
    if _implementation == "plain" or backend not in _BACKENDS:
        return False
    if backend == "torch":
        return _implementation == "fused" or query.device.type == "cuda"
    device = keras.distribution.list_devices()[0].partition(":")[0]
    if device == "cpu" and keras.backend.standardize_dtype(query.dtype) == "float16":
        return False  # JAX cannot compile its products.
    has_one_width = query.shape[-1] == value.shape[-1]
    return has_one_width and device in (("cpu", "gpu") if _implementation == "fused" else ("gpu",))


def fused_attention(query, key, value, mask=None, bias=None, scale=None):
    """`scaled_dot_product_attention` without attention weights, by `keras.ops.dot_product_attention`.

    Args:
        query: `(batch, num_heads, query_length, d_k)`.
        key: `(batch, num_kv_heads, key_length, d_k)`.
        value: `(batch, num_kv_heads, key_length, d_v)`. On JAX, `d_v` must be `d_k`.
        mask: boolean. Broadcasts to `(batch, num_heads, query_length, key_length)`. Default: `None`, no mask.
        bias: float. Broadcasts like `mask`. Default: `None`, no bias.
        scale: factor of Q Kᵀ. Default: 1 / √d_k.

    Returns:
        Output `(batch, num_heads, query_length, d_v)` in the dtype of `value`.
    """
    lengths = ops.shape(query)[2], ops.shape(key)[2]
    bias = _bias_of_both(bias, mask, lengths, keras.backend.standardize_dtype(query.dtype))
    output = ops.dot_product_attention(
        *(ops.transpose(heads, (0, 2, 1, 3)) for heads in (query, key, value)),  # (batch, time, heads, width)
        bias=bias,
        scale=scale,
        flash_attention=_flash_attention(bias, lengths),
    )
    output = ops.transpose(output, (0, 2, 1, 3))  # (batch, heads, query_length, d_v)
    if mask is None:
        return output
    # The softmax of a row without keys is that of equal scores.
    return ops.where(ops.any(mask, axis=-1, keepdims=True), output, ops.cast(0, output.dtype))


def _flash_attention(bias, lengths):
    """The setting of Keras. With a bias, `True` would be an error where the kernel does not support it."""
    is_enabled = keras.config.is_flash_attention_enabled()
    if bias is None or is_enabled is False:
        return is_enabled
    # Keras does not check that the gradient of cuDNN's kernel needs even lengths if there is a bias.
    return False if any(isinstance(length, int) and length % 2 for length in lengths) else None


def _bias_of_both(bias, mask, lengths, dtype):
    """Bias and mask as one bias `(batch, num_heads, query_length, key_length)`; the first two axes may be 1.

    On PyTorch, Keras takes only one of them. On JAX, the kernel of cuDNN needs both lengths.
    """
    if bias is None and mask is None:
        return None
    both = ops.zeros((1, 1, *lengths), "float32")
    both = both if bias is None else both + bias
    masked = _MASKED_IN_FLOAT16 if dtype == "float16" else _MASKED
    return ops.cast(both if mask is None else ops.where(mask, both, ops.cast(masked, "float32")), dtype)
