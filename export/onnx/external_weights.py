"""A file with the weights of several ONNX models, without duplicates."""

import hashlib
from pathlib import Path

import numpy as np
import onnx
from onnx.external_data_helper import set_external_data

from keras_transformer.export.onnx.graphs import scopes
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
