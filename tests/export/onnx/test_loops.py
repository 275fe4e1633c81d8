import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx import fusions
from keras_transformer.export.onnx.graphs import remove_unused, scopes
from keras_transformer.export.onnx.loops import hoist_loop_invariants, sink_constants


def value(name, dtype=TensorProto.FLOAT, shape=()):
    return helper.make_tensor_value_info(name, dtype, shape)


def powers(trips):
    """A loop with `trips` iterations that multiplies x by a weight and adds a bias. Weight and bias are loop state."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["condition_in"], ["condition_out"]),
            helper.make_node("Mul", ["x_in", "weight_in"], ["product"]),
            helper.make_node("Add", ["product", "bias_in"], ["x_out"]),
            helper.make_node("Identity", ["x_out"], ["scanned"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64),
            value("condition_in", TensorProto.BOOL),
            *(value(name) for name in ("weight_in", "x_in", "bias_in")),
        ],
        [
            value("condition_out", TensorProto.BOOL),
            value("weight_in"),
            value("x_out"),
            value("bias_in"),
            value("scanned"),
        ],
    )
    loop_outputs = ["weight_end", "x_end", "bias_end", "all"]
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["trips", "", "weight", "x", "bias"], loop_outputs, body=body),
            helper.make_node("Add", ["x_end", "weight_end"], ["sum"]),
        ],
        "powers",
        [value("x"), value("bias")],
        [value("sum"), value("all", shape=(None,))],
        [
            helper.make_tensor("trips", TensorProto.INT64, (), [trips]),
            helper.make_tensor("weight", TensorProto.FLOAT, (), [3]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def run(model, **inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {name: np.array(number, "float32") for name, number in inputs.items()})


def loop_of(model):
    (loop,) = (node for node in model.graph.node if node.op_type == "Loop")
    return loop, loop.attribute[0].g


def test_loop_invariants_are_captured_from_outside():
    model = powers(3)
    hoist_loop_invariants(model.graph)
    onnx.checker.check_model(model, full_check=True)
    loop, body = loop_of(model)
    assert list(loop.input) == ["trips", "", "x"]
    assert list(loop.output) == ["x_end", "all"]
    assert [v.name for v in body.input] == ["i", "condition_in", "x_in"]
    assert [v.name for v in body.output] == ["condition_out", "x_out", "scanned"]
    assert list(body.node[1].input) == ["x_in", "weight"]
    assert list(body.node[2].input) == ["product", "bias"]


def test_results_stay_the_same():
    before, after = powers(4), powers(4)
    hoist_loop_invariants(after.graph)
    for ours, theirs in zip(run(after, x=2, bias=1), run(before, x=2, bias=1), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # Values of x -> 3 x + 1: 7, 22, 67, 202; then the weight.
    np.testing.assert_array_equal(run(after, x=2, bias=1)[1], [7, 22, 67, 202])
    assert run(after, x=2, bias=1)[0] == 205


def nested(trips):
    """`powers` inside another loop, with its weight, bias and number of iterations as state."""
    inner = powers(2).graph.node[0].attribute[0].g
    state = {"y_in": TensorProto.FLOAT, "w_in": TensorProto.FLOAT, "b_in": TensorProto.FLOAT, "n_in": TensorProto.INT64}
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go_out"]),
            helper.make_node("Loop", ["n_in", "", "w_in", "y_in", "b_in"], ["w", "y_out", "b", "each"], body=inner),
        ],
        "outer",
        [value("j", TensorProto.INT64), value("go_in", TensorProto.BOOL), *(value(n, d) for n, d in state.items())],
        [
            value("go_out", TensorProto.BOOL),
            value("y_out"),
            *(value(name, dtype) for name, dtype in state.items() if name != "y_in"),
        ],
    )
    graph = helper.make_graph(
        [
            helper.make_node(
                "Loop", ["trips", "", "y", "weight", "bias", "trips"], ["end", "w_end", "b_end", "n_end"], body=body
            )
        ],
        "nested",
        [value("y"), value("bias")],
        [value("end")],
        powers(trips).graph.initializer,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_invariants_leave_a_loop_in_a_loop():
    before, after = nested(2), nested(2)
    hoist_loop_invariants(after.graph)
    onnx.checker.check_model(after, full_check=True)
    loop, body = loop_of(after)
    assert list(loop.input) == ["trips", "", "y"] and list(loop.output) == ["end"]
    assert list(body.node[1].input) == ["trips", "", "y_in"]
    innermost = body.node[1].attribute[0].g
    assert list(innermost.node[1].input) == ["x_in", "weight"]
    assert list(innermost.node[2].input) == ["product", "bias"]
    assert run(after, y=2, bias=1) == run(before, y=2, bias=1) == [202]


@pytest.mark.parametrize(("trips", "outside", "end"), [(3, ["Add", "Loop"], 54), (1, ["Loop"], 6)])
def test_operations_on_invariants_leave_the_loop(trips, outside, end):
    """x -> x · (w + 1): the sum moves out of the loop, the product stays. A loop of one pass is a condition."""

    def model():
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["go_in"], ["go_out"]),
                helper.make_node("Add", ["weight", "one"], ["sum"]),
                helper.make_node("Mul", ["x_in", "sum"], ["x_out"]),
            ],
            "body",
            [value("i", TensorProto.INT64), value("go_in", TensorProto.BOOL), value("x_in")],
            [value("go_out", TensorProto.BOOL), value("x_out")],
            [helper.make_tensor("one", TensorProto.FLOAT, (), [1])],
        )
        graph = helper.make_graph(
            [helper.make_node("Loop", ["trips", "", "x"], ["end"], body=body)],
            "products",
            [value("x"), value("weight")],
            [value("end")],
            [helper.make_tensor("trips", TensorProto.INT64, (), [trips])],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)

    before, after = model(), model()
    hoist_loop_invariants(after.graph)
    onnx.checker.check_model(after, full_check=True)
    assert [node.op_type for node in after.graph.node] == outside
    inside = ["Identity", "Mul"] if "Add" in outside else ["Identity", "Add", "Mul"]
    assert [node.op_type for node in loop_of(after)[1].node] == inside
    assert run(after, x=2, weight=2) == run(before, x=2, weight=2) == [end]


def test_the_unused_is_removed():
    model = powers(3)
    tensors = [("spare", 5), ("used_by_spare", 6)]
    model.graph.initializer.extend(helper.make_tensor(name, TensorProto.FLOAT, (), [x]) for name, x in tensors)
    model.graph.node.insert(0, helper.make_node("Neg", ["used_by_spare"], ["negative"]))
    model.graph.node.insert(1, helper.make_node("Neg", ["negative"], ["positive"]))
    remove_unused(model.graph)
    assert model == powers(3)


def looping_twice(table):
    """A nested loop whose inner body multiplies by a table and by its transpose, both captured from the outer graph."""

    def loop(nodes, name, trips):
        counted = [value(f"{name}/i", TensorProto.INT64), value(f"{name}/go", TensorProto.BOOL)]
        given, made = (value(f"{name}/{end}", shape=(2, 2)) for end in ("in", "out"))
        keep = helper.make_node("Identity", [f"{name}/go"], [f"{name}/go_on"])
        body = helper.make_graph(
            [keep, *nodes], name, [*counted, given], [value(f"{name}/go_on", TensorProto.BOOL), made]
        )
        return helper.make_node(
            "Loop", [trips, "", given.name.replace(name, f"{name}/first")], [f"{name}/last"], body=body
        )

    products = [
        helper.make_node("MatMul", ["inner/in", "table"], ["product"]),
        helper.make_node("MatMul", ["product", "transposed"], ["inner/out"]),
    ]
    inner = loop(products, "inner", "trips")
    inner.input[2] = "outer/in"
    outer = loop([inner, helper.make_node("Identity", ["inner/last"], ["outer/out"])], "outer", "trips")
    outer.input[2] = "x"
    nodes = [
        helper.make_node("Transpose", ["table"], ["transposed"], perm=[1, 0]),
        outer,
        helper.make_node("MatMul", ["outer/last", "table"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array(2), "trips")]
    graph = helper.make_graph(nodes, "main", [value("x", shape=(2, 2))], [value("y", shape=(2, 2))], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_each_body_has_its_own_constants(monkeypatch):
    table = np.array([[0.5, 1.0], [-1.0, 0.25]], "float32")
    model, x = looping_twice(table), np.eye(2, dtype="float32")
    expected = run(model, x=x)[0]
    np.testing.assert_allclose(expected, np.linalg.matrix_power(table @ table.T, 4) @ table, rtol=1e-5)
    sink_constants(model.graph)
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_allclose(run(model, x=x)[0], expected, rtol=1e-6)
    inner, outer, main = (graph for graph, _, _ in scopes(model.graph))
    assert [len(graph.initializer) for graph in (inner, outer, main)] == [1, 1, 2]
    assert [node.op_type for node in main.node] == ["Loop", "MatMul"]
    monkeypatch.setattr(fusions, "_LARGE", 0)
    fusions.avoid_large_transposes(model.graph)
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_allclose(run(model, x=x)[0], expected, rtol=1e-6)
    assert "Transpose" not in {node.op_type for node in inner.node} and "Gemm" in {node.op_type for node in inner.node}
