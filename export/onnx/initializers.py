"""Initializers of ONNX graphs, whose arrays may be outside of the graph while it is made."""

import contextlib
import contextvars
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data, uses_external_data

#: Minimum size of arrays that may be outside of the graph, in bytes.
LARGE = 4096
_HELD: contextvars.ContextVar[dict[str, np.ndarray] | None] = contextvars.ContextVar("held", default=None)


@contextlib.contextmanager
def arrays_outside() -> Iterator[None]:
    """In the block, `initializer` keeps large arrays outside of the graph.

    protobuf copies an array each time that it is read, and frees removed initializers only with the model. The weights
    of a large model would be several times in memory. `WeightsFile` writes the arrays before the block ends.
    """
    token = _HELD.set({})
    try:
        yield
    finally:
        _HELD.reset(token)


def initializer(array: np.ndarray, name: str) -> onnx.TensorProto:
    """Makes an initializer."""
    held = _HELD.get()
    if held is None or array.nbytes < LARGE:
        return numpy_helper.from_array(array, name)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=kind, raw_data=b"")
    key = f"held/{len(held)}"
    held[key] = array
    set_external_data(tensor, key)
    tensor.ClearField("raw_data")
    return tensor


def array_of(tensor: onnx.TensorProto) -> np.ndarray:
    """The array of an initializer."""
    held = _HELD.get()
    if held is None or not uses_external_data(tensor):
        return numpy_helper.to_array(tensor)
    return held[ExternalDataInfo(tensor).location]
