"""Tensors of files, which are read when they are used: a large model is never in memory twice."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_transformer.checks import needs

#: Dtypes in safetensors files that NumPy supports, bfloat16 with ml_dtypes.
_DTYPES = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "BF16", "F32", "F64"}


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file. NumPy reads it, each time that it is used as an array.

    Attributes:
        shape: its shape.
        read: returns its value.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.read(), dtype)


#: A tensor that has a shape, and that `np.asarray` reads.
Tensor = np.ndarray | StoredTensor


def changed(tensor: Tensor, function: Callable[[np.ndarray], np.ndarray], rows: int | None = None) -> StoredTensor:
    """A tensor to which a function is applied when it is read. `rows`: the number of its rows if that changes."""
    shape = tensor.shape if rows is None else (rows, *tensor.shape[1:])
    return StoredTensor(shape, lambda: function(np.asarray(tensor)))


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file. Raises `ValueError` for others, and for dtypes that NumPy does not support."""
    with needs("huggingface"):
        import safetensors
    import ml_dtypes  # noqa: F401, registers bfloat16 with NumPy.

    def read(name):
        # The file is opened for each tensor. Otherwise all pages that were read would stay in memory.
        with safetensors.safe_open(path, "numpy") as file:
            return file.get_tensor(name)

    try:
        with safetensors.safe_open(path, "numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, the file is no mapping.
            unknown = sorted({part.get_dtype() for part in slices.values()} - _DTYPES)
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
    except MemoryError:
        raise
    except Exception as error:  # The library's exception is not a ValueError.
        raise ValueError(f"{path.name} must be a safetensors file ({error})") from error
    if unknown:
        raise ValueError(f"{path.name} must have dtypes that NumPy supports. Received: {', '.join(unknown)}")
    return {name: StoredTensor(shape, lambda name=name: read(name)) for name, shape in shapes.items()}
