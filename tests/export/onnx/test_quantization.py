import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx.export import convert
from keras_transformer.export.onnx.graphs import scopes
from keras_transformer.export.onnx.quantization import quantize_matrices

RNG = np.random.default_rng(5)


def model(nodes, initializers, x_type=TensorProto.FLOAT, x_shape=("rows", 13)):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", x_type, x_shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("rows", None))],
        [numpy_helper.from_array(array, name) for name, array in initializers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def run(proto, x):
    onnx.checker.check_model(proto, full_check=True)
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(["y"], {"x": x})[0]


def matrices(proto):
    """The dtypes of the constants with rank 2."""
    tensors = (tensor for graph, _, _ in scopes(proto.graph) for tensor in graph.initializer)
    return {tensor.name: TensorProto.DataType.Name(tensor.data_type) for tensor in tensors if len(tensor.dims) == 2}


def test_each_output_has_its_own_scale():
    """A single scale would round small columns to zero."""
    weight = (RNG.normal(size=(13, 7)) * 10.0 ** np.arange(-3, 4)).astype("float32")
    proto = model([helper.make_node("MatMul", ["x", "weight"], ["y"])], {"weight": weight})
    quantize_matrices(proto.graph)
    x = RNG.normal(size=(5, 13)).astype("float32")
    error = np.abs(run(proto, x) - x @ weight) / np.abs(x @ weight).max(axis=0)
    assert error.max() < 0.03
    assert matrices(proto) == {"weight/int8_0": "INT8"}


@pytest.mark.parametrize("activation", ["Identity", "Relu"])
def test_a_row_does_not_depend_on_others(activation):
    """A row's result is bit-identical for any other rows and any number of rows."""
    nodes = [helper.make_node(activation, ["x"], ["active"]), helper.make_node("MatMul", ["active", "weight"], ["y"])]
    proto = model(nodes, {"weight": RNG.normal(size=(13, 7)).astype("float32")})
    quantize_matrices(proto.graph)
    x = RNG.normal(size=(5, 13)).astype("float32")
    expected = run(proto, x)
    for row, neighbour in enumerate((1e4, -1e4, 0, 1e-9)):
        beside = x.copy()
        beside[row + 1] *= neighbour
        np.testing.assert_array_equal(np.delete(run(proto, beside), row + 1, 0), np.delete(expected, row + 1, 0))
    for row in range(5):
        np.testing.assert_array_equal(run(proto, x[row : row + 1]), expected[row : row + 1])


@pytest.mark.parametrize("activation", ["Identity", "Relu"])
def test_a_row_of_zeros_gives_zeros(activation):
    nodes = [helper.make_node(activation, ["x"], ["active"]), helper.make_node("MatMul", ["active", "weight"], ["y"])]
    proto = model(nodes, {"weight": RNG.normal(size=(13, 7)).astype("float32")})
    quantize_matrices(proto.graph)
    found = run(proto, RNG.normal(size=(3, 13)).astype("float32") * np.float32([[1], [0], [1]]))
    assert not found[1].any() and found[0].any() and np.isfinite(found).all()


def test_after_a_relu_all_of_the_range_is_used():
    weight = np.eye(13, dtype="float32")
    nodes = [helper.make_node("Relu", ["x"], ["active"]), helper.make_node("MatMul", ["active", "weight"], ["y"])]
    proto = model(nodes, {"weight": weight})
    quantize_matrices(proto.graph)
    x = np.linspace(-1, 1, 13, dtype="float32")[None]
    assert 0 < np.abs(run(proto, x) - np.maximum(x, 0)).max() <= 0.5 / 255 + 1e-6


def test_a_relu_is_applied_to_the_largest_values_only():
    nodes = [helper.make_node("Relu", ["x"], ["active"]), helper.make_node("MatMul", ["active", "weight"], ["y"])]
    proto = model(nodes, {"weight": RNG.normal(size=(13, 7)).astype("float32")})
    quantize_matrices(proto.graph)
    (relu,) = (node for node in proto.graph.node if node.op_type == "Relu")
    assert relu.output[0].endswith("x_largest")
    x = -np.abs(RNG.normal(size=(3, 13))).astype("float32")
    x[1, 2] = 2
    assert not run(proto, x)[[0, 2]].any() and run(proto, x)[1].all()


def test_a_column_of_zeros_stays_zero():
    weight = RNG.normal(size=(13, 3)).astype("float32")
    weight[:, 1] = 0
    proto = model([helper.make_node("MatMul", ["x", "weight"], ["y"])], {"weight": weight})
    quantize_matrices(proto.graph)
    found = run(proto, RNG.normal(size=(5, 13)).astype("float32"))
    assert np.isfinite(found).all() and not found[:, 1].any() and found[:, 0].all()


def test_an_embedding_that_is_the_outputs_too_is_stored_once():
    table = RNG.normal(size=(11, 13)).astype("float32")
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["embedded"]),
        helper.make_node("Transpose", ["table"], ["transposed"], perm=[1, 0]),
        helper.make_node("MatMul", ["embedded", "transposed"], ["y"]),
    ]
    proto = model(nodes, {"table": table}, TensorProto.INT32, ("rows",))
    quantize_matrices(proto.graph)
    ids = np.array([0, 10, 4], "int32")
    np.testing.assert_allclose(run(proto, ids), table[ids] @ table.T, atol=0.4)
    assert matrices(proto) == {"table/int8_1": "INT8"}


def test_products_with_rows_of_an_embedding_use_its_integers():
    table = (RNG.normal(size=(11, 13)) * 10.0 ** RNG.integers(-2, 2, (11, 1))).astype("float32")
    rows = np.array([7, 2, 10, 3], "int64")
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["candidates"]),
        helper.make_node("Transpose", ["candidates"], ["transposed"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "transposed"], ["y"]),
    ]
    proto = model(nodes, {"table": table, "rows": rows})
    quantize_matrices(proto.graph)
    operators = [node.op_type for node in proto.graph.node]
    assert operators.count("DequantizeLinear") == 2 and "Cast" not in operators  # The rows are not converted before.
    assert matrices(proto) == {"table/int8_1": "INT8"}
    x = RNG.normal(size=(5, 13)).astype("float32")
    expected = x @ table[rows].T
    assert (np.abs(run(proto, x) - expected).max(axis=0) < 0.05 * np.abs(expected).max(axis=0)).all()


def test_embeddings_have_a_scale_a_row():
    table = (RNG.normal(size=(7, 13)) * 10.0 ** np.arange(-3, 4)[:, None]).astype("float32")
    proto = model([helper.make_node("Gather", ["table", "x"], ["y"])], {"table": table}, TensorProto.INT32, ("rows",))
    quantize_matrices(proto.graph)
    ids = np.arange(7, dtype="int32")
    error = np.abs(run(proto, ids) - table).max(axis=1) / np.abs(table).max(axis=1)
    assert error.max() < 1 / 63


def test_products_of_one_input_quantise_it_once():
    names = ("a", "b", "c")
    weights = {name: RNG.normal(size=(13, 4)).astype("float32") for name in names}
    nodes = [helper.make_node("MatMul", ["x", name], [f"x{name}"]) for name in names]
    nodes.append(helper.make_node("Concat", [f"x{name}" for name in names], ["y"], axis=1))
    proto = model(nodes, weights)
    quantize_matrices(proto.graph)
    assert [node.op_type for node in proto.graph.node].count("QuantizeLinear") == 1
    x = RNG.normal(size=(5, 13)).astype("float32")
    np.testing.assert_allclose(run(proto, x), x @ np.concatenate([*weights.values()], axis=1), atol=0.3)


def test_products_in_a_loop_are_quantised():
    """Products inside and outside of a loop, with all weights in the outermost graph."""
    first, second = (RNG.normal(size=(13, 13)).astype("float32") / 4 for _ in range(2))

    def program(x):
        start = tf.matmul(x, tf.constant(first))
        return (
            tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y + tf.matmul(y, tf.constant(second))), (0, start))[
                1
            ],
        )

    proto = convert(
        program, [tf.TensorSpec([None, 13], tf.float32, name="x")], {"x": ("rows", 13)}, {"y": ("rows", 13)}
    )
    x = RNG.normal(size=(5, 13)).astype("float32")
    expected = run(proto, x)
    quantize_matrices(proto.graph)
    assert [*matrices(proto).values()] == ["INT8"] * 2 and len(proto.graph.initializer) >= 4
    np.testing.assert_allclose(run(proto, x), expected, atol=0.05 * np.abs(expected).max())


def test_products_of_two_variables_stay():
    proto = model([helper.make_node("MatMul", ["x", "x"], ["y"])], {}, x_shape=(3, 3))
    quantize_matrices(proto.graph)
    assert [node.op_type for node in proto.graph.node] == ["MatMul"]


def test_a_square_matrix_used_both_ways_has_scales_for_each():
    table = (RNG.normal(size=(13, 13)) * 10.0 ** RNG.integers(-2, 2, (13, 1))).astype("float32")
    nodes = [
        helper.make_node("MatMul", ["x", "table"], ["product"]),
        helper.make_node("Transpose", ["table"], ["transposed"], perm=[1, 0]),
        helper.make_node("MatMul", ["product", "transposed"], ["y"]),
    ]
    proto = model(nodes, {"table": table})
    quantize_matrices(proto.graph)
    x = RNG.normal(size=(5, 13)).astype("float32")
    expected = x @ table @ table.T
    assert np.abs(run(proto, x) - expected).max() < 0.05 * np.abs(expected).max()


def test_gathers_of_columns_and_of_integers_are_left_alone():
    for table, axis in ((RNG.normal(size=(3, 13)).astype("float32"), 1), (np.arange(39).reshape(13, 3), 0)):
        nodes = [
            helper.make_node("Gather", ["table", "x"], ["gathered"], axis=axis),
            helper.make_node("Cast", ["gathered"], ["y"], to=TensorProto.FLOAT),
        ]
        proto = model(nodes, {"table": table}, TensorProto.INT32, ("rows",))
        quantize_matrices(proto.graph)
        assert [node.op_type for node in proto.graph.node] == ["Gather", "Cast"]
