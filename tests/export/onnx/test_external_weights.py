import contextlib
import tracemalloc

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx.external_weights import WEIGHTS, WeightsFile, save_in_one_file
from keras_transformer.export.onnx.graphs import scopes
from keras_transformer.export.onnx.initializers import arrays_outside, initializer

LARGE, OTHER, SMALL = (np.full((rows, 32), rows, "float32") for rows in (64, 65, 2))


def adding(*arrays):
    """A model that adds the sum of each array to x."""
    names = [f"tensor_{i}" for i in range(len(arrays))]
    sums = [helper.make_node("ReduceSum", [name], [f"{name}/sum"], keepdims=0) for name in names]
    graph = helper.make_graph(
        [*sums, helper.make_node("Sum", ["x", *(node.output[0] for node in sums)], ["y"])],
        "adding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ())],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ())],
        [initializer(array, name) for name, array in zip(names, arrays, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture(params=[True, False], ids=["arrays outside", "arrays inside"])
def folder(tmp_path, request):
    weights = WeightsFile(tmp_path)
    for name, arrays in (("a", [LARGE, SMALL]), ("b", [OTHER, LARGE, LARGE])):
        with arrays_outside() if request.param else contextlib.nullcontext():
            model = adding(*arrays)
            weights.take_from(model)
        onnx.save(model, tmp_path / f"{name}.onnx")
    return tmp_path


def test_equal_tensors_share_a_place(folder):
    assert (folder / WEIGHTS).stat().st_size == 5 * 4096  # 64 · 32 · 4 bytes are two pages, 65 rows three.
    for name in ("a", "b"):
        assert (folder / f"{name}.onnx").stat().st_size < 2000


def test_the_models_compute_as_before(folder):
    for name, arrays in (("a", [LARGE, SMALL]), ("b", [OTHER, LARGE, LARGE])):
        onnx.checker.check_model(folder / f"{name}.onnx", full_check=True)
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
        assert session.run(["y"], {"x": np.array(7, "float32")})[0] == 7 + sum(array.sum() for array in arrays)


def test_arrays_outside_of_the_graph_are_not_copied(tmp_path):
    array = np.random.default_rng(0).normal(size=(1000, 1000)).astype("float32")
    tracemalloc.start()
    with arrays_outside():
        model = adding(array)
        assert model.ByteSize() < 1000
        ((_, _, constants),) = scopes(model.graph)
        assert constants["tensor_0"] is array
        WeightsFile(tmp_path).take_from(model)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert (tmp_path / WEIGHTS).read_bytes()[: array.nbytes] == array.tobytes()


def test_a_transposed_array_is_written_in_its_own_order(tmp_path):
    array = np.arange(64 * 32, dtype="float32").reshape(32, 64).T
    with arrays_outside():
        WeightsFile(tmp_path).take_from(adding(array))
    assert (tmp_path / WEIGHTS).read_bytes() == array.tobytes()


def looping(outer, inner):
    """A model that adds `inner` to x three times in a loop, and multiplies the sum by `outer`."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "inner"], ["next"]), helper.make_node("Identity", ["more"], ["again"])],
        "body",
        [info("i", TensorProto.INT64, []), info("more", TensorProto.BOOL, []), info("state", TensorProto.FLOAT, None)],
        [info("again", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(inner, "inner")],
    )
    nodes = [
        helper.make_node("Loop", ["three", "", "x"], ["sum"], body=body),
        helper.make_node("MatMul", ["sum", "outer"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.int64(3), "three"), numpy_helper.from_array(outer, "outer")]
    graph = helper.make_graph(
        nodes, "graph", *([info(name, TensorProto.FLOAT, [None, None])] for name in "xy"), constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("other", [0, 1])
def test_a_weight_of_the_main_graph_and_of_a_loop_is_in_the_file_once(other, tmp_path):
    random = np.random.default_rng(1)
    outer = random.normal(size=(40, 40)).astype("float32")
    inner = outer.copy()
    inner[-1, -1] += other  # Its first bytes are the same.
    whole = looping(outer, inner)
    save_in_one_file(looping(outer, inner), tmp_path / "a.onnx")
    size = (tmp_path / "a.onnx").stat().st_size
    assert size == len(whole.SerializeToString()) if other else size < outer.nbytes + 1000
    onnx.checker.check_model(tmp_path / "a.onnx", full_check=True)
    x = random.normal(size=(40, 40)).astype("float32")
    expected, found = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        for model in (whole.SerializeToString(), tmp_path / "a.onnx")
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, (x + 3 * inner) @ outer, rtol=1e-4, atol=1e-4)


def test_the_place_is_right_if_its_number_moves_the_bytes(tmp_path):
    """The size of the graph precedes it, and has one byte more from 2,097,152 on."""
    large = np.random.default_rng(1).normal(size=(723, 725)).astype("float32")
    for end in range(20, 80):  # Of each size near this one.
        model = looping(large, large)
        model.graph.doc_string = "x" * (2_097_152 - model.graph.ByteSize() + large.nbytes - end)
        save_in_one_file(model, tmp_path / "a.onnx")
        loaded = onnx.load(tmp_path / "a.onnx")
        np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[1]), large)
