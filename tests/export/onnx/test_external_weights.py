import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_transformer.export.onnx.external_weights import WEIGHTS, WeightsFile

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
        [numpy_helper.from_array(array, name) for name, array in zip(names, arrays, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture
def folder(tmp_path):
    weights = WeightsFile(tmp_path)
    for name, arrays in (("a", [LARGE, SMALL]), ("b", [OTHER, LARGE, LARGE])):
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
