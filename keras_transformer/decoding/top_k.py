"""A faster `top_k` over a large vocabulary."""

from keras import ops

#: Possible group sizes. The axis is split into groups by the first size that divides its length.
_GROUP_SIZES = range(64, 256)
#: Minimum length of an axis that is split into groups.
_SHORTEST = 2048


def top_k(x, k: int):
    """`ops.top_k` for a small k over a long last axis.

    `ops.top_k` over a large vocabulary costs as much as a decoder layer. This function splits the axis into groups and
    selects the k groups with the largest maxima. These contain the k largest values.

    Args:
        x: `(rows, n)`. If n is dynamic, this is `ops.top_k`.
        k: number of values, at most n.

    Returns:
        Values and int32 indices, both `(rows, k)`, in descending order. The order of equal values may differ from
        `ops.top_k`.
    """
    n = x.shape[-1]
    size = next((size for size in _GROUP_SIZES if n % size == 0), n) if n else n
    if n is None or n < _SHORTEST or 4 * k * size > n:
        values, indices = ops.top_k(x, k)
        return values, ops.cast(indices, "int32")
    groups = ops.reshape(x, (-1, size))  # (rows * n / size, size)
    # (rows, n / size, size) -> (rows, n / size) -> (rows, k): the groups with the largest maxima.
    _, best = ops.top_k(ops.max(ops.reshape(groups, (-1, n // size, size)), axis=-1), k)
    rows = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32"), 1)
    best = ops.cast(best, "int32")
    kept = ops.take(groups, rows * (n // size) + best, axis=0)  # (rows, k, size)
    values, at = ops.top_k(ops.reshape(kept, (-1, k * size)), k)
    at = ops.cast(at, "int32")
    group = ops.take(ops.reshape(best, (-1,)), rows * k + at // size, axis=0)  # (rows, k)
    return values, group * size + at % size
