import keras
import numpy as np
import pytest

from keras_transformer import cache as kv_cache
from keras_transformer.cache import KeyValue

to_numpy = keras.ops.convert_to_numpy


def empty(max_length=7):
    return KeyValue.empty(2, num_heads=3, d_k=5, d_v=11, max_length=max_length, dtype="float32")


def positions(start, stop, width):
    """Keys or values that differ in every element."""
    whole = np.arange(2 * 3 * 7 * width, dtype="float32").reshape(2, 3, 7, width)
    return whole[:, :, start:stop]


def test_empty_holds_no_position():
    key, value = empty()
    length = 0 if kv_cache.GROWS else 7
    assert key.shape == (2, 3, length, 5)
    assert value.shape == (2, 3, length, 11)
    assert not to_numpy(key).any() and not to_numpy(value).any()


def test_empty_grows_in_a_loop_with_static_shapes(tensorflow):
    @tensorflow.function
    def grown():
        one = KeyValue(*(keras.ops.ones((2, 3, 1, width)) for width in (5, 11)))
        cache = KeyValue.empty(2, 3, 5, 11, 7, "float32")
        step = lambda i, cache: (i + 1, cache.append(one, i))  # noqa: E731
        return keras.ops.while_loop(lambda i, _: i < 4, step, (0, cache))[1]

    assert grown().key.shape == (2, 3, 4, 5)


def test_empty_takes_its_dtype():
    key, value = KeyValue.empty(2, 3, 5, 11, 7, "float16")
    assert keras.backend.standardize_dtype(key.dtype) == keras.backend.standardize_dtype(value.dtype) == "float16"


@pytest.mark.parametrize("chunks", [(1, 1, 1), (2, 3), (4, 1)])
def test_append_puts_positions_in_order(chunks):
    cache, offset = empty(), 0
    for chunk in chunks:
        new = KeyValue(positions(offset, offset + chunk, 5), positions(offset, offset + chunk, 11))
        cache = cache.append(KeyValue(*map(keras.ops.convert_to_tensor, new)), offset)
        offset += chunk
    assert isinstance(cache, KeyValue)
    for part, width in ((cache.key, 5), (cache.value, 11)):
        part = to_numpy(part)
        assert np.array_equal(part[:, :, :offset], positions(0, offset, width))
        assert part.shape[2] == (offset if kv_cache.GROWS else 7)
        assert not part[:, :, offset:].any()
