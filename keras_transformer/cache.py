"""The key/value cache of self-attention: its structure, its growth and its reordering."""

from typing import Any, NamedTuple

import keras
from keras import ops

#: JAX compiles static shapes, so there the cache is allocated whole and filled. Elsewhere it
#: starts empty and grows: attention then reads only what is there.
GROWS = keras.backend.backend() != "jax"


class KeyValue(NamedTuple):
    """Projected keys and values of one attention layer."""

    key: Any  # (batch, num_heads, time, d_k)
    value: Any  # (batch, num_heads, time, d_v)


def empty(like, batch_size, num_heads: int, d_k: int, d_v: int, max_length, dtype: str) -> KeyValue:
    """A cache that holds no position yet.

    Args:
        like: any int tensor; where the cache grows, its initial length is derived from it, because
            a length of zero known at trace time would fix the shape of a loop's state.
        batch_size: rows.
        num_heads: attention heads.
        d_k: width of a key.
        d_v: width of a value.
        max_length: positions to allocate where the cache does not grow.
        dtype: of the keys and values.

    Returns:
        `KeyValue` of zeros, `(batch_size, num_heads, time, d_k)` and `(…, d_v)`.
    """
    length = ops.sum(like[:0]) if GROWS else max_length
    return KeyValue(
        ops.zeros((batch_size, num_heads, length, d_k), dtype),
        ops.zeros((batch_size, num_heads, length, d_v), dtype),
    )


def append(cache: KeyValue, new: KeyValue, offset) -> KeyValue:
    """The cache with the keys and values of positions `offset`, `offset + 1`, … put in.

    Args:
        cache: what was there, `(batch, num_heads, time, d_k | d_v)`.
        new: what comes, `(batch, num_heads, new_time, d_k | d_v)`.
        offset: position of the first new key; where the cache grows it is `time`.

    Returns:
        `KeyValue`.
    """
    if GROWS:
        return KeyValue(*(ops.concatenate(pair, axis=2) for pair in zip(cache, new, strict=True)))
    return KeyValue(*(ops.slice_update(old, (0, 0, offset, 0), part) for old, part in zip(cache, new, strict=True)))


def reorder(caches, rows):
    """The caches of all layers with the batch rows `rows`.

    Args:
        caches: a sequence of `KeyValue`, one a layer.
        rows: int tensor `(new_batch,)`: for each new row the old one it continues.

    Returns:
        A tuple of `KeyValue`.
    """
    return tuple(KeyValue(*(ops.take(part, rows, axis=0) for part in cache)) for cache in caches)
