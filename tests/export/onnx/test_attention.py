from collections import Counter

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx.attention import fold_scales, simplify_masks
from keras_transformer.export.onnx.export import convert
from keras_transformer.layers import MultiHeadAttention

BATCH, HEADS, KEYS, WIDTH = 3, 2, 5, 7


def operators(graph):
    return Counter(node.op_type for node in graph.node)


def run(model, **inputs):
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)


def made(nodes, inputs, outputs, constants=()):
    """A model of nodes whose inputs and outputs are float matrices."""
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (None, None)) for name in names]
        for names in (inputs, outputs)
    )
    weights = [numpy_helper.from_array(array, name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("use_bias", [True, False])
def test_the_scale_of_queries_is_in_their_weights(randomize, use_bias):
    layer = MultiHeadAttention(12, 3, use_bias=use_bias)
    layer.build((None, None, 12))
    randomize(layer)
    signature, shape = [tf.TensorSpec((None, None, 12), tf.float32, name="x")], ("batch", "length", 12)
    model = convert(lambda x: (layer(x),), signature, {"x": shape}, {"y": shape}, layer.weights)
    assert operators(model.graph)["Mul"] == 0
    x = np.random.default_rng(4).normal(size=(2, 5, 12)).astype("float32")
    np.testing.assert_allclose(run(model, x=x)[0], layer(x), atol=1e-5)


@pytest.mark.parametrize("product", ["used twice", "an output", "by a vector", "of two inputs"])
def test_other_scales_stay(product):
    factor = np.full((3,) if product == "by a vector" else (), 5, "float32")
    second = "x" if product == "of two inputs" else "weight"
    nodes = [helper.make_node("MatMul", ["x", second], ["y"]), helper.make_node("Mul", ["y", "factor"], ["z"])]
    if product == "used twice":
        nodes.append(helper.make_node("Neg", ["y"], ["negative"]))
    outputs = {"used twice": ["z", "negative"], "an output": ["y", "z"]}.get(product, ["z"])
    weight = np.arange(9, dtype="float32").reshape(3, 3)
    nodes.append(helper.make_node("Neg", ["z"], ["last"]))
    outputs = [name for name in outputs if name != "z"] + ["last"]
    model = made(nodes, ["x"], outputs, {"factor": factor, "weight": weight})
    fold_scales(model.graph)
    assert operators(model.graph)["Mul"] == 1
    x = np.arange(3, 12, dtype="float32").reshape(3, 3)
    second = x if product == "of two inputs" else weight
    np.testing.assert_allclose(run(model, x=x)[-1], -5 * (x @ second))


def test_a_scale_that_is_an_output_stays():
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["y"]), helper.make_node("Mul", ["y", "factor"], ["z"])]
    model = made(nodes, ["x"], ["z"], {"factor": np.float32(5), "weight": np.eye(3, dtype="float32")})
    fold_scales(model.graph)
    np.testing.assert_allclose(run(model, x=np.ones((2, 3), "float32"))[0], np.full((2, 3), 5.0))


class Search(keras.layers.Layer):
    """Three steps of attention to the same values. The queries of a step are the result of the last one."""

    def __init__(self, mask="of the keys"):
        super().__init__()
        self.mask = mask

    def call(self, query, key, value, mask):
        if self.mask == "of queries and keys":  # The second query of each sentence may attend to nothing.
            mask = tf.expand_dims(tf.stack([mask, tf.zeros_like(mask)], axis=1), 1)  # (batch, 1, 2, keys)
        else:
            mask = tf.expand_dims(tf.expand_dims(mask, 1), 1)  # (batch, 1, 1, keys)

        def step(i, query):
            shown = tf.logical_and(mask, i < 2) if self.mask == "of the step" else mask
            scores = tf.matmul(query, key, transpose_b=True)
            weights = tf.nn.softmax(tf.where(shown, scores, tf.constant(-3e38)))
            kept = tf.cast(tf.reduce_any(shown, axis=-1, keepdims=True), "float32")
            return i + 1, query + tf.matmul(weights * kept, value)

        return tf.while_loop(lambda i, query: i < 3, step, (0, query))[1]


def search_model(mask):
    layer = Search(mask)
    names, lengths = ("query", "key", "value"), ("queries", "keys", "keys")
    shapes = {name: ("batch", HEADS, length, WIDTH) for name, length in zip(names, lengths, strict=True)}
    signature = [tf.TensorSpec((None, HEADS, None, WIDTH), tf.float32, name=name) for name in names]
    signature.append(tf.TensorSpec((None, None), tf.bool, name="mask"))
    inputs = {**shapes, "mask": ("batch", "keys")}
    return convert(lambda *args: (layer(*args),), signature, inputs, {"y": shapes["query"]}), layer


@pytest.mark.parametrize(
    ("mask", "in_loop"),
    [
        ("of the keys", {"Where": 0, "Mul": 0}),
        ("of queries and keys", {"Where": 0, "Mul": 1}),
        ("of the step", {"Where": 1, "Mul": 1}),
    ],
)
def test_masks_are_applied_before_the_loop(mask, in_loop):
    model, layer = search_model(mask)
    (body,) = (node.attribute[0].g for node in model.graph.node if node.op_type == "Loop")
    found = operators(body)
    assert {name: found[name] for name in in_loop} == in_loop
    rng = np.random.default_rng(5)
    query, key, value = (rng.normal(size=(BATCH, HEADS, length, WIDTH)).astype("float32") for length in (2, KEYS, KEYS))
    shown = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)  # Nothing in the last sentence.
    expected = layer(query, key, value, shown)
    (found,) = run(model, query=query, key=key, value=value, mask=shown)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(found[2], query[2])


def test_a_choice_between_other_values_stays():
    """A constant that is not far below all scores replaces them, so a sum would not."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go"]),
            helper.make_node("Where", ["mask", "x_in", "small"], ["x_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info(name, dtype, shape)
            for name, dtype, shape in (
                ("i", TensorProto.INT64, ()),
                ("go_in", TensorProto.BOOL, ()),
                ("x_in", TensorProto.FLOAT, (None, None)),
            )
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("x_out", TensorProto.FLOAT, (None, None)),
        ],
    )
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["mask"]),
        helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body),
    ]
    constants = {"zero": np.float32(0), "small": np.float32(-5), "trips": np.array(2, "int64")}
    model = made(nodes, ["x"], ["y"], constants)
    simplify_masks(model.graph)
    np.testing.assert_array_equal(run(model, x=np.array([[2, -3]], "float32"))[0], [[2, -5]])
