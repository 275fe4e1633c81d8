"""Graphs and signatures have the inputs of earlier versions: the same names, types and dimensions, and no others."""

import pathlib

import onnx
import pytest
from tensorflow.core.protobuf import saved_model_pb2

ROOT = pathlib.Path(__file__).parents[3]
VERSIONS = sorted(file.parent.name for file in ROOT.glob("tests/golden/*/expected.json"))


@pytest.fixture(params=VERSIONS)
def earlier(request, golden):
    """The exports of an earlier version."""
    return golden(request.param) / "model" / "export"


def of_graph(file):
    """The inputs and the outputs of an ONNX graph: name -> type and dimensions. Sizes of the model are left out."""
    graph = onnx.load(file, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}

    def described(values):
        kinds = ((value.name, value.type.tensor_type) for value in values if value.name not in constants)
        return {name: (kind.elem_type, [one.dim_param for one in kind.shape.dim]) for name, kind in kinds}

    return described(graph.input), described(graph.output)


def of_signatures(folder):
    """The inputs and the outputs of each signature of a SavedModel: name -> type and dimensions."""
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())

    def described(values):
        return {name: (value.dtype, [one.size for one in value.tensor_shape.dim]) for name, value in values.items()}

    signatures = saved.meta_graphs[0].signature_def.items()
    return {name: (described(one.inputs), described(one.outputs)) for name, one in signatures}


@pytest.mark.parametrize("runtime", ["onnx", "onnx_int8"])
def test_graphs_keep_their_inputs_and_outputs(runtime, earlier, exported):
    for file in (earlier / runtime).glob("*.onnx"):
        inputs, outputs = of_graph(file)
        new_inputs, new_outputs = of_graph(exported / "export" / runtime / file.name)
        assert new_inputs == inputs and new_outputs | outputs == new_outputs


def test_signatures_keep_their_inputs_and_outputs(earlier, exported):
    found = of_signatures(exported / "export" / "saved_model")
    for name, (inputs, outputs) in of_signatures(earlier / "saved_model").items():
        new_inputs, new_outputs = found[name]
        assert new_inputs == inputs and new_outputs | outputs == new_outputs
