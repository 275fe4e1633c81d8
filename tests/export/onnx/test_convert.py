import keras
import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx
from onnx import numpy_helper

from keras_transformer.export.onnx.export import convert


def test_the_weights_do_not_go_through_tf2onnx(monkeypatch, randomize):
    """tf2onnx would copy each weight dozens of times."""
    seen, original = [], tf2onnx.convert.from_function

    def from_function(*args, **kwargs):
        proto, storage = original(*args, **kwargs)
        seen.extend(tensor.name for tensor in proto.graph.initializer if len(tensor.raw_data) > 100)
        return proto, storage

    monkeypatch.setattr(tf2onnx.convert, "from_function", from_function)
    used, other = (keras.layers.Dense(17) for _ in range(2))
    for layer in (used, other):
        layer.build((None, 13))
        randomize(layer)
    signature = [tf.TensorSpec([None, 13], tf.float32, name="x")]
    variables = [*other.weights, *used.weights]
    proto = convert(lambda x: (used(x),), signature, {"x": ("rows", 13)}, {"y": ("rows", 17)}, variables)
    assert seen == []
    found = [numpy_helper.to_array(tensor) for tensor in proto.graph.initializer]
    for array, weight in zip(found, used.weights, strict=True):  # Unused weights are not converted.
        np.testing.assert_array_equal(array, weight)
    assert [value.name for value in proto.graph.input] == ["x"]
    x = np.random.default_rng(0).normal(size=(3, 13)).astype("float32")
    (y,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(y, used(x), rtol=1e-5, atol=1e-5)
