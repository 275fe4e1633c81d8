"""A file with the weights of several ONNX models, without duplicates."""

import hashlib
from pathlib import Path

import onnx
from onnx.external_data_helper import set_external_data

from keras_transformer.export.onnx.graphs import scopes

#: Name of the file.
WEIGHTS = "weights.data"

#: Alignment of tensors in the file, in bytes, for memory mapping. Smaller tensors stay in the model.
_PAGE = 4096


class WeightsFile:
    """A file in the folder of several models, to which their weights are moved. Equal tensors are stored once."""

    def __init__(self, folder: Path):
        self._file = folder / WEIGHTS
        self._offsets = {}

    def take_from(self, model: onnx.ModelProto) -> None:
        """Moves the weights of a model, which is saved in the folder afterwards, into the file."""
        for graph, _, _ in scopes(model.graph):
            for tensor in graph.initializer:
                if len(tensor.raw_data) >= _PAGE:
                    set_external_data(tensor, WEIGHTS, self._offset(tensor.raw_data), len(tensor.raw_data))
                    tensor.ClearField("raw_data")

    def _offset(self, data):
        key = hashlib.sha256(data).digest()
        if key not in self._offsets:
            with self._file.open("ab") as stream:
                self._offsets[key] = stream.tell()
                stream.write(data + bytes(-len(data) % _PAGE))
        return self._offsets[key]
