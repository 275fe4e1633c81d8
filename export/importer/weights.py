"""The weights of a model in the files of transformers: safetensors, in one file or several, or a PyTorch file."""

import zipfile
from pathlib import Path

from keras_transformer.export.importer.piece_ids import read_json
from keras_transformer.export.interop.stored import StoredTensor, stored_tensors

_SAFETENSORS, _INDEX, _PYTORCH = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
#: Names of the file that has the weights, or lists the files that have them. The first one that exists is read.
WEIGHTS = (_SAFETENSORS, _INDEX, _PYTORCH)


def weights_file(folder: Path) -> str:
    """The name of the file that has the weights, or lists the files that have them."""
    return next((name for name in WEIGHTS if (folder / name).is_file()), _SAFETENSORS)


def parts_of_weights(path: Path) -> list[str]:
    """The names of the other files that a file of `WEIGHTS` lists. Raises `ValueError` for an invalid index."""
    if path.name != _INDEX:
        return []
    # A name must not lead out of the folder.
    return sorted({Path(name).name for name in read_json(path).get("weight_map", {}).values()})


def read_weights(path: Path) -> dict[str, StoredTensor]:
    """The weights of a file that `weights_file` names.

    Raises:
        ValueError: if a file is missing or invalid, or a PyTorch file contains other objects than tensors.
    """
    if path.name == _PYTORCH:
        return _read_pytorch(path)
    if path.name == _SAFETENSORS:
        return stored_tensors(path)
    tensors: dict[str, StoredTensor] = {}
    for name in parts_of_weights(path):
        tensors |= stored_tensors(path.with_name(name))
    return tensors


def _read_pytorch(path):
    """The tensors of a pickle. PyTorch reads it without running code: it refuses all other objects."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError("PyTorch is not installed. It reads this format: pip install torch") from error
    try:
        # Files of old versions of PyTorch, which are no ZIP archives, cannot be memory-mapped.
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # PyTorch's errors have no common class.
        raise ValueError(f"it must contain tensors only ({str(error).splitlines()[0]})") from error
    if not isinstance(tensors, dict) or not all(isinstance(x, torch.Tensor) for x in tensors.values()):
        raise ValueError("it must contain a dict of tensors")
    return {name: StoredTensor(tuple(x.shape), lambda x=x: x.float().numpy()) for name, x in tensors.items()}
