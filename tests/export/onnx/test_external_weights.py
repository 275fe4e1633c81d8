import contextlib
import tracemalloc

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from keras_transformer.export.onnx.external_weights import WEIGHTS, WeightsFile
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
