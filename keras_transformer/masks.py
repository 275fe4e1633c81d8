"""Padding, causal, prefix and segment masks, and their combination. Masks are boolean: `True` = may be attended."""

import functools

import keras
import numpy as np
from keras import ops

# Keras has no public function that reads the implicit mask. JAX tracers do not store it as an attribute.
from keras.src.backend import get_keras_mask, set_keras_mask

from keras_transformer.config import PAD_ID

__all__ = ["attention_mask", "causal_mask", "padding_mask", "prefix_lm_mask", "segment_mask"]


def padding_mask(ids, pad_id: int = PAD_ID):
    """Boolean mask of the tokens that are not padding.

    Args:
        ids: int tensor `(batch, length)`.
        pad_id: id of padding.

    Returns:
        Boolean tensor `(batch, length)`.

    Example:

    >>> padding_mask(np.array([[5, 6, 0]])).numpy()
    array([[ True,  True, False]])
    """
    return ops.not_equal(ids, pad_id)


def causal_mask(query_length, key_length, offset=0):
    """Boolean mask of the keys at or before the position of each query.

    Two queries at positions 1 and 2 (`offset=1`) and four keys:

        query 1:  1 1 0 0
        query 2:  1 1 1 0

    Args:
        query_length: number of queries.
        key_length: number of keys, the first at position 0.
        offset: position of the first query.

    Returns:
        Boolean tensor `(query_length, key_length)`.

    Example:

    >>> causal_mask(2, 4, offset=1).numpy().astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 1, 0]])

    Reference:
        Vaswani et al. 2017, §3.2.3.
    """
    query_position = ops.arange(query_length, dtype="int32") + ops.cast(offset, "int32")
    return ops.arange(key_length, dtype="int32") <= ops.expand_dims(query_position, 1)


def prefix_lm_mask(prefix_mask):
    """Boolean mask of a prefix language model: bidirectional in the prefix, causal after it.

    A prefix of two tokens, such as a prompt, and three more:

        prefix 1:  1 1 0 0 0
        prefix 1:  1 1 0 0 0
        prefix 0:  1 1 1 0 0
        prefix 0:  1 1 1 1 0
        prefix 0:  1 1 1 1 1

    Args:
        prefix_mask: boolean or 0/1 `(batch, length)`, `True` in the prefix.

    Returns:
        Boolean tensor `(batch, length, length)`.

    Example:

    >>> prefix_lm_mask(np.array([[1, 1, 0]])).numpy().astype(int)
    array([[[1, 1, 0],
            [1, 1, 0],
            [1, 1, 1]]])

    Reference:
        Raffel et al. 2020, §3.2.1 and Figure 3 (causal with prefix).
    """
    length = ops.shape(prefix_mask)[1]
    in_prefix = ops.expand_dims(as_boolean("`prefix_mask`", prefix_mask), 1)  # (batch, 1, length)
    return ops.logical_or(causal_mask(length, length), in_prefix)


def segment_mask(query_segments, key_segments):
    """Boolean mask of the keys in the segment of each query, for rows that pack several sequences.

    Query segments 1 1 2 0 and key segments 1 1 1 2 2 (0 is padding):

        segment 1:  1 1 1 0 0
        segment 1:  1 1 1 0 0
        segment 2:  0 0 0 1 1
        segment 0:  0 0 0 0 0

    Args:
        query_segments: int `(batch, query_length)`, segment of each query.
        key_segments: int `(batch, key_length)`, segment of each key.

    Returns:
        Boolean tensor `(batch, query_length, key_length)`.

    Example:

    >>> segment_mask(np.array([[1, 2]]), np.array([[1, 1, 2]])).numpy().astype(int)
    array([[[1, 1, 0],
            [0, 0, 1]]])

    Reference:
        Raffel et al. 2020, §3.1.2 (packing).
    """
    return ops.equal(ops.expand_dims(query_segments, 2), ops.expand_dims(key_segments, 1))


def attention_mask(key_mask=None, mask=None, causal=None):
    """Combines masks with a logical AND into one mask that broadcasts over attention scores.

    Args:
        key_mask: boolean or 0/1 `(batch, key_length)`, `True` for keys that are not padding.
        mask: boolean or 0/1. With rank 2 or less it broadcasts to `(query_length, key_length)`, with rank 3 to
            `(batch, query_length, key_length)`, with rank 4 to `(batch, num_heads, query_length, key_length)`.
        causal: boolean `(query_length, key_length)`, from `causal_mask`.

    Returns:
        Boolean tensor that broadcasts to `(batch, num_heads, query_length, key_length)`, or
        `None` if nothing is masked.

    Raises:
        ValueError: if the rank of `mask` is above 4, or a mask has a float dtype.
    """
    parts = []
    if key_mask is not None:
        parts.append(ops.expand_dims(as_boolean("A padding mask", key_mask), (1, 2)))
    if mask is not None:
        parts.append(_with_head_axis(as_boolean("`attention_mask`", mask)))
    if causal is not None:
        parts.append(ops.expand_dims(causal, (0, 1)))
    return functools.reduce(ops.logical_and, parts) if parts else None


def as_boolean(name, mask):
    """Casts a boolean or integer mask to boolean.

    Float masks raise an error: in an additive float mask 0 means "may be attended", the opposite of a boolean mask.
    """
    mask = ops.convert_to_tensor(mask) if isinstance(mask, (tuple, list)) else mask
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype != "bool" and "int" not in dtype:
        raise ValueError(
            f"{name} must be boolean (`True` = may be attended) or integers 0 and 1; additive float masks are not "
            f"supported. Received: dtype={dtype}"
        )
    return mask if dtype == "bool" else ops.cast(mask, "bool")


def without_mask(x):
    """Removes the implicit Keras mask of a tensor, and returns the tensor."""
    set_keras_mask(x, None)
    return x


def resolve(mask, inputs):
    """Returns the explicit mask of a call, or else the implicit Keras mask of the inputs.

    Keras passes the implicit mask as `mask` if the call has one tensor argument, and as `<argument>_mask` if it has
    several. Layers with optional tensor arguments must handle both cases. For a nested argument Keras passes a
    structure of masks, which is ignored.

    Args:
        mask: boolean tensor or nested lists `(batch, length)`, or `None`, or a structure of masks.
        inputs: the tensor `(batch, length, …)` that the mask applies to, or a structure of tensors.

    Returns:
        Boolean tensor `(batch, length)`, or `None` if there is no mask.

    Raises:
        ValueError: if the mask does not have one value per position of the inputs.
    """
    if isinstance(mask, (tuple, list)):
        is_values = any(isinstance(leaf, (bool, int, float, np.generic)) for leaf in keras.tree.flatten(mask))
        mask = ops.convert_to_tensor(mask) if is_values else None
    if mask is None:
        return get_keras_mask(inputs)
    if hasattr(inputs, "shape") and len(inputs.shape) == 3:
        length = inputs.shape[1]
        if len(mask.shape) != 2 or None not in (mask.shape[1], length) and mask.shape[1] != length:
            raise ValueError(
                f"A padding mask must have shape (batch, {length or 'length'}), one value per position. "
                f"Received: shape={tuple(mask.shape)}"
            )
    return mask


def _with_head_axis(mask):
    rank = len(mask.shape)
    if rank > 4:
        raise ValueError(f"`attention_mask` must have at most rank 4. Received: shape={tuple(mask.shape)}")
    return ops.expand_dims(mask, 1 if rank == 3 else tuple(range(4 - rank)))
