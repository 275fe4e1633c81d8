"""Attention with position schemes in ONNX: a functional model, and one step with a cache."""

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from keras_transformer import layers
from keras_transformer.cache import KeyValue
from keras_transformer.export.onnx.export import convert

BATCH, LENGTH, HEADS, D_K, D_V, D_MODEL = 2, 7, 3, 10, 11, 17
SCHEMES = {
    "rotary": lambda: layers.RotaryPositions(),
    "interleaved": lambda: layers.RotaryPositions(fraction=0.6, layout="interleaved"),
    "qk_norm": lambda: layers.QKNorm(),
    "alibi": lambda: layers.ALiBi(),
    "relative": lambda: layers.RelativePositionBias(num_buckets=8, max_distance=5),
    "window": lambda: layers.SlidingWindow(3),
    "four": lambda: [layers.QKNorm(), layers.RotaryPositions(), layers.ALiBi(), layers.SlidingWindow(4)],
}


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.fixture(params=SCHEMES)
def layer(request, tensorflow, randomize):
    layer = layers.MultiHeadAttention(D_MODEL, HEADS, D_K, D_V, positions=SCHEMES[request.param]())
    layer.build((None, None, D_MODEL))
    return randomize(layer, scale=0.3)


def run(proto, **inputs):
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)


def test_a_functional_model_gives_the_same(layer):
    start = keras.Input((None, D_MODEL))
    model = keras.Model(start, layer(start, use_causal_mask=True))
    signature = [tf.TensorSpec([None, None, D_MODEL], tf.float32, name="x")]
    shape = ("batch", "length", D_MODEL)
    proto = convert(lambda x: (model(x),), signature, {"x": shape}, {"y": shape}, model.weights)
    for x in (normal(BATCH, LENGTH, D_MODEL), normal(3, 13, D_MODEL), normal(1, 1, D_MODEL)):
        np.testing.assert_allclose(run(proto, x=x)[0], model(x).numpy(), rtol=1e-4, atol=1e-5)


def test_steps_with_a_cache_give_the_same(layer):
    def step(x, key, value):
        offset = keras.ops.shape(key)[2]
        output, cache = layer(x, use_causal_mask=True, cache=KeyValue(key, value), offset=offset)
        return output, *cache

    shapes = [("rows", HEADS, "time", width) for width in (D_K, D_V)]
    inputs = {"x": ("rows", D_MODEL), "key": shapes[0], "value": shapes[1]}
    signature = [
        tf.TensorSpec([size if isinstance(size, int) else None for size in shape], tf.float32, name=name)
        for name, shape in inputs.items()
    ]
    outputs = {"y": ("rows", D_MODEL), "next_key": shapes[0], "next_value": shapes[1]}
    proto = convert(step, signature, inputs, outputs, layer.weights)
    x = normal(BATCH, LENGTH, D_MODEL)
    expected = layer(x, use_causal_mask=True).numpy()
    key, value = (np.zeros((BATCH, HEADS, 0, width), "float32") for width in (D_K, D_V))
    for i in range(LENGTH):
        y, key, value = run(proto, x=x[:, i], key=key, value=value)
        np.testing.assert_allclose(y, expected[:, i], rtol=1e-4, atol=1e-5)
