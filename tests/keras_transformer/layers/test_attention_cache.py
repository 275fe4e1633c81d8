import keras
import numpy as np
import pytest

from keras_transformer.cache import KeyValue
from keras_transformer.layers import MultiHeadAttention

to_numpy = keras.ops.convert_to_numpy
BATCH, LENGTH, KEYS, HEADS, D_MODEL = 2, 7, 5, 3, 17


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture
def layer(randomize):
    layer = MultiHeadAttention(D_MODEL, HEADS, d_k=13, d_v=11)
    layer.build((None, None, D_MODEL))
    return randomize(layer, scale=0.3)


def run_in_chunks(layer, x, chunks, **arguments):
    cache = layer.empty_cache(len(x), x.shape[1])
    outputs, offset = [], 0
    for chunk in chunks:
        part = x[:, offset : offset + chunk]
        result, cache = layer(part, use_causal_mask=True, cache=cache, offset=offset, **arguments)
        outputs.append(to_numpy(result))
        offset += chunk
    return np.concatenate(outputs, axis=1), cache


@pytest.mark.parametrize("chunks", [[1] * LENGTH, [3, 1, 1, 2], [LENGTH]], ids=str)
def test_cached_equals_one_full_pass(layer, chunks):
    x = normal(BATCH, LENGTH, D_MODEL)
    cached, cache = run_in_chunks(layer, x, chunks)
    np.testing.assert_allclose(cached, to_numpy(layer(x, use_causal_mask=True)), atol=1e-5)
    assert isinstance(cache, KeyValue)
    assert cache.key.shape == (BATCH, HEADS, LENGTH, 13)
    assert cache.value.shape == (BATCH, HEADS, LENGTH, 11)


def test_the_offset_may_be_a_tensor(layer):
    x = normal(BATCH, LENGTH, D_MODEL)
    _, cache = run_in_chunks(layer, x[:, :], [3])
    offset = keras.ops.convert_to_tensor(3, "int32")
    result, _ = layer(x[:, 3:5], use_causal_mask=True, cache=cache, offset=offset)
    full = to_numpy(layer(x, use_causal_mask=True))
    np.testing.assert_allclose(to_numpy(result), full[:, 3:5], atol=1e-5)


def test_all_of_the_filled_cache_is_seen_without_causality(layer):
    x = normal(BATCH, LENGTH, D_MODEL)
    _, cache = run_in_chunks(layer, x, [3])
    result, _ = layer(x[:, 3:5], cache=cache, offset=3)
    expected = layer(x[:, 3:5], x[:, :5])
    np.testing.assert_allclose(to_numpy(result), to_numpy(expected), atol=1e-5)


def test_scores_come_before_the_cache(layer):
    x = normal(BATCH, LENGTH, D_MODEL)
    cache = layer.empty_cache(BATCH, LENGTH)
    result, scores, cache = layer(x, use_causal_mask=True, cache=cache, return_attention_scores=True)
    assert result.shape == (BATCH, LENGTH, D_MODEL)
    assert scores.shape == (BATCH, HEADS, LENGTH, LENGTH)
    assert isinstance(cache, KeyValue)


def test_projected_memory_equals_unprojected(layer):
    query, memory = normal(BATCH, LENGTH, D_MODEL), normal(BATCH, KEYS, D_MODEL, seed=1)
    key = normal(BATCH, KEYS, D_MODEL, seed=2)
    mask = np.array([[True] * 3 + [False] * 2, [True] * 5])
    for arguments in ((memory,), (memory, key)):
        projected = layer.project(*map(keras.ops.convert_to_tensor, arguments))
        expected = layer(query, *arguments, value_mask=mask, key_mask=mask)
        result = layer(query, projected, value_mask=mask)
        np.testing.assert_allclose(to_numpy(result), to_numpy(expected), atol=1e-5)


@pytest.mark.parametrize("length", [1, 3])
def test_beam_rows_share_their_sentences_memory(layer, length):
    beams = 4
    query, memory = normal(BATCH * beams, length, D_MODEL), normal(BATCH, KEYS, D_MODEL, seed=1)
    mask = np.array([[True] * 3 + [False] * 2, [True] * 5])
    result = layer(query, layer.project(keras.ops.convert_to_tensor(memory)), value_mask=mask)
    expected = layer(query, np.repeat(memory, beams, axis=0), value_mask=np.repeat(mask, beams, axis=0))
    np.testing.assert_allclose(to_numpy(result), to_numpy(expected), atol=1e-5)
    assert result.shape == (BATCH * beams, length, D_MODEL)
