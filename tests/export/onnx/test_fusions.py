from collections import Counter

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import helper, numpy_helper

from keras_transformer.export.onnx import fusions
from keras_transformer.export.onnx.export import convert
from keras_transformer.export.onnx.fusions import avoid_large_transposes, merge_products
from keras_transformer.layers import MultiHeadAttention

WIDTH = 12


def exported(layer, *shape):
    """The layer as an ONNX model with one input."""
    signature = [tf.TensorSpec(shape, tf.float32, name="x")]
    shapes = {name: ("batch", *shape[1:]) for name in "xy"}
    return convert(lambda x: (layer(x),), signature, {"x": shapes["x"]}, {"y": shapes["y"]}, layer.weights)


def operators(model):
    return Counter(node.op_type for node in model.graph.node)


def run(model, x):
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(["y"], {"x": x})[0]


@pytest.fixture
def x():
    return np.random.default_rng(2).normal(2.0, 3.0, (5, WIDTH)).astype("float32")


@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
def test_layer_normalization_is_one_operator(x, randomize, epsilon):
    layer = keras.layers.LayerNormalization(epsilon=epsilon)
    layer.build((None, WIDTH))
    randomize(layer)
    model = exported(layer, None, WIDTH)
    assert operators(model) == {"LayerNormalization": 1}
    np.testing.assert_allclose(run(model, x), layer(x), atol=1e-5)


class Other(keras.layers.Layer):
    """Similar to a normalization, but with the mean of another tensor."""

    def build(self, shape):
        self.gamma, self.beta = (self.add_weight((1, WIDTH), name=name) for name in ("gamma", "beta"))

    def call(self, x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        factor = tf.math.rsqrt(variance + 1e-3) * self.gamma
        return 2.0 * x * factor + (-mean * factor + self.beta)


def test_another_formula_stays(x, randomize):
    layer = Other()
    layer.build((None, WIDTH))
    randomize(layer)
    model = exported(layer, None, WIDTH)
    assert "LayerNormalization" not in operators(model)
    np.testing.assert_allclose(run(model, x), layer(x), atol=1e-5)


class Projections(keras.layers.Layer):
    """The query, key and value projections of attention, with different widths."""

    def __init__(self, use_bias):
        super().__init__()
        sizes = {"d_k": 5, "d_v": 7} if use_bias else {"d_k": 3, "d_v": 3}
        self.attention = MultiHeadAttention(WIDTH, 2, use_bias=use_bias, **sizes)
        self.attention.build((None, WIDTH))

    def call(self, x):
        attention = self.attention
        query, (key, value) = attention.query_projection(x), attention.project(x)
        parts = [query * 2.0, *(tf.reshape(part, (-1, 2 * part.shape[-1])) for part in (key, value))]
        return tf.concat(parts, -1)[:, :WIDTH]


@pytest.mark.parametrize("use_bias", [True, False])
def test_products_of_one_matrix_are_one(x, randomize, use_bias):
    layer = randomize(Projections(use_bias))
    model = exported(layer, None, WIDTH)
    found = operators(model)
    assert (found["MatMul"], found["Split"], found["Add"]) == (1, 1, int(use_bias))
    np.testing.assert_allclose(run(model, x), layer(x), atol=1e-4)


def test_a_product_that_is_used_twice_keeps_its_own_bias(x):
    rng = np.random.default_rng(3)
    shapes = {"first": (WIDTH, 2), "second": (WIDTH, 2), "bias": (2,), "other_bias": (2,)}
    tensors = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["raw"]),
        helper.make_node("Neg", ["raw"], ["negative"]),
        helper.make_node("Add", ["raw", "bias"], ["sum"]),
        helper.make_node("MatMul", ["x", "second"], ["product"]),
        helper.make_node("Add", ["product", "other_bias"], ["other_sum"]),
        helper.make_node("Concat", ["negative", "sum", "other_sum"], ["y"], axis=1),
    ]
    inputs, outputs = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("rows", None)) for name in "xy")
    weights = [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()]
    graph = helper.make_graph(nodes, "graph", [inputs], [outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    merge_products(model.graph)
    raw = x @ tensors["first"]
    expected = [-raw, raw + tensors["bias"], x @ tensors["second"] + tensors["other_bias"]]
    np.testing.assert_allclose(run(model, x), np.concatenate(expected, axis=1), atol=1e-4)


def test_gather_resolves_negative_indices(x):
    class Rows(keras.layers.Layer):
        def call(self, x):
            return keras.ops.take(x, keras.ops.cast(x[:, 0], "int32"), axis=0)

    x[:, 0] = [0, -1, 4, -5, 2]
    model = exported(Rows(), None, WIDTH)
    assert not {"Where", "Less", "Add"} & set(operators(model))
    np.testing.assert_array_equal(run(model, x), x[[0, -1, 4, -5, 2]])


def test_gather_from_weights_resolves_negative_indices(x):
    """The length of the axis is a constant here."""

    class Rows(keras.layers.Layer):
        def build(self, shape):
            self.table = self.add_weight((5, WIDTH), name="table")

        def call(self, x):
            return keras.ops.take(self.table, keras.ops.cast(x[:, 0], "int32"), axis=0)

    x[:, 0] = [0, -1, 4, -5, 2]
    layer = Rows()
    layer.build(None)
    layer.table.assign(np.arange(5 * WIDTH).reshape(5, WIDTH))
    model = exported(layer, None, WIDTH)
    assert not {"Where", "Less", "Add"} & set(operators(model))
    np.testing.assert_array_equal(run(model, x), layer(x))


def test_other_choices_of_an_index_stay(x):
    class Rows(keras.layers.Layer):
        def call(self, x):
            rows = tf.cast(x[:, 0], "int32")
            return tf.gather(x, tf.where(tf.cast(rows, "int64") < 0, rows + 2, rows + 1))

    x[:, 0] = [0, -1, 3, -2, 2]
    np.testing.assert_array_equal(run(exported(Rows(), None, WIDTH), x), x[[1, 1, 4, 0, 3]])


@pytest.mark.parametrize("choice", ["of another number", "by another comparison"])
def test_an_index_that_is_moved_otherwise_stays(x, choice):
    class Rows(keras.layers.Layer):
        def call(self, x):
            rows = tf.cast(x[:, 0], "int32")
            if choice == "of another number":
                return tf.gather(x, tf.where(tf.cast(rows, "int64") < 0, rows + 4, rows))
            return tf.gather(x, tf.where(tf.cast(rows, "int64") < 2, rows + tf.shape(x)[0], rows) % 5)

    x[:, 0] = [0, -1, 3, -2, 2]
    expected = [0, 3, 3, 2, 2] if choice == "of another number" else [0, 4, 3, 3, 2]
    np.testing.assert_array_equal(run(exported(Rows(), None, WIDTH), x), x[expected])


@pytest.mark.parametrize("variant", ["another axis", "another variance"])
def test_other_formulas_than_layer_normalization_stay(x, variant):
    class Almost(keras.layers.Layer):
        def call(self, x):
            axis = 0 if variant == "another axis" else -1
            mean, variance = tf.nn.moments(x, [axis], keepdims=True)
            if variant == "another variance":
                _, variance = tf.nn.moments(x * x, [-1], keepdims=True)
            factor = tf.math.rsqrt(variance + 1e-3) * tf.ones((1, WIDTH))
            return x * factor + (-mean * factor + tf.ones((1, WIDTH)))

    model = exported(Almost(), None, WIDTH)
    assert "LayerNormalization" not in operators(model)
    np.testing.assert_allclose(run(model, x), Almost()(x), rtol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "least", "order", "is_replaced"),
    [
        ("float32", 576, [1, 0], True),
        ("float32", 577, [1, 0], False),
        ("float32", 0, [0, 1], False),
        ("float16", 0, [1, 0], False),
    ],
)
def test_a_large_transposed_matrix_is_multiplied_as_it_is_stored(monkeypatch, dtype, least, order, is_replaced):
    """In the branches of a condition, which use the matrix for something else, too."""
    monkeypatch.setattr(fusions, "_LARGE", least)
    random = np.random.default_rng(0)
    matrix, x = random.normal(size=(WIDTH, WIDTH)).astype(dtype), random.normal(size=(3, 2, WIDTH)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(matrix.dtype)
    nodes = [
        helper.make_node("Transpose", ["matrix"], ["columns"], perm=order),
        helper.make_node("MatMul", ["x", "columns"], ["product"]),
        helper.make_node("ReduceSum", ["matrix"], ["sum"], keepdims=0),
        helper.make_node("Add", ["product", "sum"], ["result"]),
    ]
    result, y = (helper.make_tensor_value_info(name, kind, ["batch", 2, WIDTH]) for name in ("result", "y"))
    branch = helper.make_graph(nodes, "branch", [], [result], [numpy_helper.from_array(matrix, "matrix")])
    inputs = [
        helper.make_tensor_value_info("x", kind, ["batch", 2, WIDTH]),
        helper.make_tensor_value_info("choice", onnx.TensorProto.BOOL, []),
    ]
    choice = helper.make_node("If", ["choice"], ["y"], then_branch=branch, else_branch=branch)
    graph = helper.make_graph([choice], "graph", inputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    avoid_large_transposes(model.graph)
    onnx.checker.check_model(model, full_check=True)
    found = Counter(node.op_type for attribute in model.graph.node[0].attribute for node in attribute.g.node)
    expected = {"Gemm": 2, "MatMul": 0, "Transpose": 0} if is_replaced else {"Gemm": 0, "MatMul": 2, "Transpose": 2}
    assert {name: found[name] for name in expected} == expected
    session, columns = onnxruntime.InferenceSession(model.SerializeToString()), matrix.transpose(order)
    for rows in (x, x[:0]):
        (found,) = session.run(None, {"x": rows, "choice": np.array(True)})
        np.testing.assert_allclose(found, rows @ columns + matrix.sum(), atol=1e-5 if dtype == "float32" else 0.1)
