"""The k largest of many."""

from keras import ops

#: Sizes of a group, where the axis is a multiple of one.
_GROUP_SIZES = range(64, 256)
#: A shorter axis is gone through whole.
_SHORTEST = 2048


def top_k(x, k: int):
    """`ops.top_k` for a small k over a long last axis.

    Going through a whole vocabulary for its k best costs as much as a layer. The k largest are in the
    k groups whose own largest are largest, and those are found by a plain maximum.

    Args:
        x: `(rows, n)`, n static.
        k: how many; at most n.

    Returns:
        Values and int32 indices, `(rows, k)`, largest first. Equal values may come in another order.
    """
    n = x.shape[-1]
    size = next((size for size in _GROUP_SIZES if n % size == 0), n)
    if n < _SHORTEST or 4 * k * size > n:
        values, indices = ops.top_k(x, k)
        return values, ops.cast(indices, "int32")
    groups = ops.reshape(x, (-1, size))
    _, best = ops.top_k(ops.max(ops.reshape(groups, (-1, n // size, size)), axis=-1), k)
    rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32"), 1)
    best = ops.cast(best, "int32")
    kept = ops.take(groups, rows * (n // size) + best, axis=0)
    values, at = ops.top_k(ops.reshape(kept, (-1, k * size)), k)
    at = ops.cast(at, "int32")
    group = ops.take(ops.reshape(best, (-1,)), rows * k + at // size, axis=0)
    return values, group * size + at % size
