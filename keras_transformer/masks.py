"""The only place where masks are made. Masks are boolean; `True` means "may be attended"."""

import keras
from keras import ops

# There is no public reader of the implicit mask; on JAX tracers it is not an attribute.
from keras.src.backend import get_keras_mask

__all__ = ["attention_mask", "causal_mask", "padding_mask", "segment_mask"]


def padding_mask(ids, pad_id: int = 0):
    """`True` where a token is real.

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
    """`True` where the key does not lie after the query.

    With two queries that stand at positions 1 and 2 (`offset=1`) and four keys:

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
    return ops.arange(key_length, dtype="int32")[None, :] <= query_position[:, None]


def segment_mask(query_segments, key_segments):
    """`True` where query and key belong to one segment: what may be attended in rows of several sequences.

    With the queries 1 1 2 0 and the keys 1 1 1 2 2 (0 is padding):

        segment 1:  1 1 1 0 0
        segment 1:  1 1 1 0 0
        segment 2:  0 0 0 1 1
        segment 0:  0 0 0 0 0

    Args:
        query_segments: int `(batch, query_length)`, the segment of each query.
        key_segments: int `(batch, key_length)`.

    Returns:
        Boolean tensor `(batch, query_length, key_length)`.

    Example:

    >>> segment_mask(np.array([[1, 2]]), np.array([[1, 1, 2]])).numpy().astype(int)
    array([[[1, 1, 0],
            [0, 0, 1]]])

    Reference:
        Raffel et al. 2020, §3.1.2 (packing).
    """
    return ops.equal(query_segments[:, :, None], key_segments[:, None, :])


def attention_mask(key_mask=None, mask=None, causal=None):
    """The conjunction of what is given, ready to broadcast over attention scores.

    Args:
        key_mask: boolean or 0/1 `(batch, key_length)`, `True` for keys that are real.
        mask: boolean or 0/1, of rank 2 at most `(query_length, key_length)`, rank 3 `(batch,
            query_length, key_length)` as in Keras, or rank 4; any axis may be 1.
        causal: boolean `(query_length, key_length)`, from `causal_mask`.

    Returns:
        Boolean tensor that broadcasts to `(batch, num_heads, query_length, key_length)`, or
        `None` if nothing is masked.

    Raises:
        ValueError: if `mask` has a higher rank, or a mask is of a float dtype.
    """
    parts = []
    if key_mask is not None:
        parts.append(as_boolean("A padding mask", key_mask)[:, None, None, :])
    if mask is not None:
        parts.append(_with_head_axis(as_boolean("`attention_mask`", mask)))
    if causal is not None:
        parts.append(causal[None, None])
    combined = None
    for part in parts:
        combined = part if combined is None else ops.logical_and(combined, part)
    return combined


def as_boolean(name, mask):
    """The mask as booleans. Float masks are refused: one that is added to scores marks with 0 what may be attended.

    Args:
        name: what messages call it.
        mask: boolean or integer tensor.

    Returns:
        Boolean tensor of the shape of `mask`.

    Raises:
        ValueError: if `mask` is of a float dtype.

    Example:

    >>> as_boolean("`mask`", np.array([1, 0])).numpy()
    array([ True, False])
    """
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype != "bool" and "int" not in dtype:
        raise ValueError(
            f"{name} must be boolean, with `True` for what may be attended, or integers 0 and 1, "
            f"not a float mask to add to the scores. Received: dtype={dtype}"
        )
    return mask if dtype == "bool" else ops.cast(mask, "bool")


def resolve(mask, inputs):
    """The explicit mask of a call, else the one that an earlier layer left on the inputs, or `None`.

    Keras fills a call's `mask` argument only where the call has a single tensor argument, and
    `<argument>_mask` only where it has several; layers that take optional tensors need both. For a
    nested argument it fills in a structure, which is no mask.

    Args:
        mask: boolean tensor `(batch, length)`, or `None`, or a structure of `None`.
        inputs: the tensor `(batch, length, …)` that the mask speaks of, or a structure of tensors.

    Returns:
        Boolean tensor `(batch, length)` or `None`.

    Raises:
        ValueError: if the mask has another length than the inputs.
    """
    if mask is None or isinstance(mask, (tuple, list)):
        return get_keras_mask(inputs)
    if hasattr(inputs, "shape") and (len(mask.shape), len(inputs.shape)) == (2, 3):
        lengths = mask.shape[1], inputs.shape[1]
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(
                f"A padding mask must have shape (batch, {lengths[1]}), one value for each position. "
                f"Received: shape={tuple(mask.shape)}"
            )
    return mask


def _with_head_axis(mask):
    if len(mask.shape) <= 2:
        return ops.reshape(mask, (1,) * (4 - len(mask.shape)) + tuple(ops.shape(mask)))
    if len(mask.shape) == 3:
        return mask[:, None]
    if len(mask.shape) == 4:
        return mask
    raise ValueError(f"`attention_mask` must have rank 4 at most. Received: shape={tuple(mask.shape)}")
