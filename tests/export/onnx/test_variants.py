"""Variants of layers converted to ONNX, with dynamic batches and lengths, beside Keras."""

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.cache import KeyValue
from keras_transformer.config import ACTIVATIONS
from keras_transformer.export.onnx.export import convert
from keras_transformer.layers import FeedForward, MultiHeadAttention

D_MODEL, HEADS, D_K, D_V = 12, 6, 5, 7
GROUPS = [1, 2, HEADS]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def run(function, arrays, outputs, variables):
    """Converts a function of named arrays, whose last axis alone is static, and runs it. Returns a list of outputs."""
    signature = [
        tf.TensorSpec([None] * (x.ndim - 1) + [x.shape[-1] if x.dtype == "float32" else None], x.dtype, name=name)
        for name, x in arrays.items()
    ]
    inputs = {spec.name: [size or f"{spec.name}_{i}" for i, size in enumerate(spec.shape)] for spec in signature}
    proto = convert(function, signature, inputs, outputs, variables)
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, arrays)


@pytest.mark.slow
def test_every_activation_is_exported(randomize):
    """Plain and with a gate, in one graph."""
    layers = [FeedForward(3, 5, name, gated=gated) for name in ACTIVATIONS for gated in (False, True)]
    for layer in layers:
        layer.build((None, D_MODEL))
        randomize(layer)
    x = normal(11, D_MODEL)
    outputs = {f"y_{i:03}": ("rows", 3) for i in range(len(layers))}
    variables = [weight for layer in layers for weight in layer.weights]
    found = run(lambda x: tuple(layer(x) for layer in layers), {"x": x}, outputs, variables)
    for layer, y in zip(layers, found, strict=True):
        name = f"{layer.get_config()['activation']}, gated={layer.gated}"
        np.testing.assert_allclose(y, layer(x), rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.fixture(params=[True, False], ids=["biases", "no biases"])
def make(request, randomize):
    """Makes an attention. Without biases tf2onnx removes reshapes at the end of a projection."""

    def make(num_kv_heads, num_heads=HEADS):
        variant = {"num_kv_heads": num_kv_heads, "scale": 0.3, "soft_cap": 4.0}
        layer = MultiHeadAttention(D_MODEL, num_heads, D_K, D_V, use_bias=request.param, **variant)
        layer.build((None, None, D_MODEL))
        return randomize(layer, scale=0.5)

    return make


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [*((HEADS, group) for group in GROUPS), (1, 1)])
def test_grouped_attention_is_exported(num_heads, num_kv_heads, make):
    layer = make(num_kv_heads, num_heads)

    def attend(x, is_real):
        return layer(x, query_mask=is_real, use_causal_mask=True, return_attention_scores=True)

    arrays = {"x": normal(2, 5, D_MODEL), "is_real": np.arange(5) < np.array([[5], [3]])}
    outputs = {"output": ("rows", "length", D_MODEL), "weights": ("rows", num_heads, "length", "length")}
    for one, other in zip(run(attend, arrays, outputs, layer.weights), attend(**arrays), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("num_kv_heads", GROUPS)
def test_a_step_with_caches_is_exported(num_kv_heads, make):
    """Self-attention of one position with the cache, and attention of beams to one memory."""
    layer = make(num_kv_heads)

    def step(x, key, value, memory_key, memory_value, is_real):
        x, cache = layer(x, use_causal_mask=True, cache=KeyValue(key, value), offset=ops.shape(key)[2])
        return layer(x, KeyValue(memory_key, memory_value), value_mask=is_real), *cache

    memory = layer.project(ops.convert_to_tensor(normal(2, 7, D_MODEL, seed=1)))
    arrays = {
        "x": normal(6, D_MODEL),
        "key": normal(6, num_kv_heads, 4, D_K, seed=2),
        "value": normal(6, num_kv_heads, 4, D_V, seed=3),
        "memory_key": memory.key.numpy(),
        "memory_value": memory.value.numpy(),
        "is_real": np.arange(7) < np.array([[4], [7]]),
    }
    widths = {"a_output": D_MODEL, "b_key": D_K, "c_value": D_V}
    outputs = {name: ("rows", *[None] * (name != "a_output") * 2, width) for name, width in widths.items()}

    def traced(x, key, value, memory_key, memory_value, is_real):
        # As in an exported decoder, the number of heads is static.
        heads = [ops.reshape(t, (ops.shape(t)[0], num_kv_heads, ops.shape(t)[2], t.shape[3])) for t in (key, value)]
        memory = [
            ops.reshape(t, (ops.shape(t)[0], num_kv_heads, ops.shape(t)[2], t.shape[3]))
            for t in (memory_key, memory_value)
        ]
        return step(x, *heads, *memory, is_real)

    expected = step(**{name: ops.convert_to_tensor(array) for name, array in arrays.items()})
    for one, other in zip(run(traced, arrays, outputs, layer.weights), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("num_kv_heads", GROUPS)
def test_a_loop_with_a_growing_cache_is_exported(num_kv_heads, make):
    """Position by position it gives what one causal pass gives."""
    layer = make(num_kv_heads)

    def decode(x):
        rows, length = ops.shape(x)[0], ops.shape(x)[1]
        empty = layer.empty_cache(rows, length)
        outputs = ops.zeros((rows, ops.shape(empty.key)[2], D_MODEL))

        def body(i, key, value, outputs):
            output, cache = layer(x[:, i], use_causal_mask=True, cache=KeyValue(key, value), offset=i)
            return i + 1, *cache, ops.concatenate([outputs, ops.expand_dims(output, 1)], axis=1)

        shapes = [tf.TensorShape(shape) for shape in ([], *[[None, num_kv_heads, None, d] for d in (D_K, D_V)])]
        state = (tf.constant(0), *empty, outputs)
        return tf.while_loop(lambda i, *_: i < length, body, state, (*shapes, tf.TensorShape([None, None, D_MODEL])))[
            3:
        ]

    x = normal(2, 5, D_MODEL)
    (found,) = run(decode, {"x": x}, {"y": ("rows", "length", D_MODEL)}, layer.weights)
    np.testing.assert_allclose(found, layer(x, use_causal_mask=True), atol=1e-5)
