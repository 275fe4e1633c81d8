"""Weights of ONNX models, stored once: in a file of several models, or within the file of a model."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
from onnx.external_data_helper import set_external_data

from keras_transformer.export.onnx.graphs import scopes, subgraphs
from keras_transformer.export.onnx.initializers import LARGE

#: Name of the file.
WEIGHTS = "weights.data"

#: Alignment of tensors in the file, in bytes, for memory mapping. Smaller tensors stay in the model.
_PAGE = LARGE


class WeightsFile:
    """A file in the folder of several models, to which their weights are moved. Equal tensors are stored once."""

    def __init__(self, folder: Path):
        self._file = folder / WEIGHTS
        self._offsets = {}

    def take_from(self, model: onnx.ModelProto) -> None:
        """Moves the weights of a model, which is saved in the folder afterwards, into the file."""
        for graph, _, constants in scopes(model.graph):
            for tensor in graph.initializer:
                array = constants[tensor.name]
                if array.nbytes >= _PAGE:
                    tensor.raw_data = b""  # `set_external_data` requires it.
                    set_external_data(tensor, WEIGHTS, self._offset(array), array.nbytes)
                    tensor.ClearField("raw_data")

    def _offset(self, array):
        data = np.ascontiguousarray(array).reshape(-1).view("uint8")
        key = hashlib.sha256(data).digest()
        if key not in self._offsets:
            with self._file.open("ab") as stream:
                self._offsets[key] = stream.tell()
                stream.write(data)
                stream.write(bytes(-data.nbytes % _PAGE))
        return self._offsets[key]


def save_in_one_file(model: onnx.ModelProto, file: Path) -> None:
    """Writes a model. A weight of its main graph that a subgraph also contains is in the file once.

    The main graph refers to the bytes of the subgraph as external data in the same file, which must therefore keep its
    name. onnxruntime-web supports external data in the main graph only.
    """
    inner = {_key(tensor) for graph in _within(model.graph) for tensor in _large(graph)}
    repeated = [(tensor, tensor.raw_data) for tensor in _large(model.graph) if _key(tensor) in inner]
    offsets = [0] * len(repeated)
    while True:
        for (tensor, data), offset in zip(repeated, offsets, strict=True):
            tensor.raw_data = b""  # `set_external_data` requires it.
            set_external_data(tensor, file.name, offset, len(data))
            tensor.ClearField("raw_data")
        content = b""  # Frees the previous bytes first.
        content = model.SerializeToString()
        found = [content.index(data) for _, data in repeated]
        if found == offsets:
            break
        offsets = found  # Longer numbers may move the bytes.
    file.write_bytes(content)


def _within(graph):
    """All graphs within a graph."""
    for subgraph in subgraphs(graph):
        yield subgraph
        yield from _within(subgraph)


def _large(graph):
    return [tensor for tensor in graph.initializer if len(tensor.raw_data) >= _PAGE]


def _key(tensor):
    return tensor.data_type, hashlib.sha256(tensor.raw_data).digest()
