"""The key/value cache of self-attention: its structure, its growth and its reordering."""

from typing import Any, NamedTuple

import keras
from keras import ops

#: On JAX, which compiles static shapes, the cache is allocated at its maximum length. On other backends it starts
#: empty and grows with each call by the new positions, so all its positions are filled.
GROWS = keras.backend.backend() != "jax"


class KeyValue(NamedTuple):
    """Projected keys and values of one attention layer: its cache, or the memory as `project` returns it.

    Attributes:
        key: `(batch, num_kv_heads, time, d_k)`.
        value: `(batch, num_kv_heads, time, d_v)`.
    """

    key: Any
    value: Any

    @classmethod
    def empty(cls, batch_size, num_heads: int, d_k: int, d_v: int, max_length, dtype: str) -> "KeyValue":
        """Makes an empty cache.

        Args:
            batch_size: number of rows.
            num_heads: number of attention heads.
            d_k: width of a key.
            d_v: width of a value.
            max_length: number of positions to allocate if the cache does not grow.
            dtype: dtype of the keys and values.

        Returns:
            Zeros, `(batch_size, num_heads, time, d_k)` and `(…, d_v)`.
        """
        shapes = [(batch_size, num_heads, 1 if GROWS else max_length, width) for width in (d_k, d_v)]
        key, value = (ops.zeros(shape, dtype) for shape in shapes)
        if not GROWS:
            return cls(key, value)
        # The state of a `while_loop` keeps its static shape, so the length of 0 must be dynamic.
        no_positions = ops.nonzero(ops.zeros((1,), "int32"))[0]
        return cls(ops.take(key, no_positions, axis=2), ops.take(value, no_positions, axis=2))

    def append(self, new: "KeyValue", offset) -> "KeyValue":
        """Returns the cache with the keys and values of positions `offset`, `offset + 1`, … added.

        Args:
            new: new keys and values, `(batch, num_heads, new_time, d_k | d_v)`.
            offset: position of the first new key. Equals `time` if the cache grows.

        Returns:
            The new cache. On JAX, whose caches do not grow, it has as many positions as before.
        """
        if GROWS:
            return type(self)(*(ops.concatenate(pair, axis=2) for pair in zip(self, new, strict=True)))
        pairs = zip(self, new, strict=True)
        return type(self)(*(ops.slice_update(old, (0, 0, offset, 0), part) for old, part in pairs))


def length_after(cache: KeyValue, new_length):
    """The length of a cache after `new_length` positions were appended, including unfilled positions."""
    length = ops.shape(cache.key)[2]
    return length + new_length if GROWS else length
