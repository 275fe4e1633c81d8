"""The weights of a model in the files of transformers: safetensors or PyTorch, in one file or several."""

import zipfile
from pathlib import Path

from keras_transformer.checks import needs
from keras_transformer.export.importer.json_files import read_json
from keras_transformer.export.interop.stored import StoredTensor, stored_tensors

_SAFETENSORS, _PYTORCH, _INDEX = "model.safetensors", "pytorch_model.bin", ".index.json"
#: Names of the file that has the weights, or lists the files that have them. The first one that exists is read.
WEIGHTS = (_SAFETENSORS, _SAFETENSORS + _INDEX, _PYTORCH, _PYTORCH + _INDEX)


def weights_file(folder: Path) -> str:
    """The name of the file that has the weights, or lists the files that have them."""
    return next((name for name in WEIGHTS if (folder / name).is_file()), _SAFETENSORS)


def parts_of_weights(path: Path) -> list[str]:
    """The names of the files with the weights, by a file of `WEIGHTS`: those that it lists, or its own."""
    if not path.name.endswith(_INDEX):
        return [path.name]
    # A name must not lead out of the folder.
    return sorted({Path(name).name for name in read_json(path)["weight_map"].values()})


def require_reader(file: str) -> None:
    """Checks that the package that reads a file of `WEIGHTS` is installed. Raises `ValueError`."""
    if file.startswith(_PYTORCH):
        with needs("torch"):
            import torch  # noqa: F401


def read_weights(path: Path) -> dict[str, StoredTensor]:
    """The weights of a file that `weights_file` names.

    Raises:
        ValueError: if a file is missing or invalid, or a PyTorch file contains other objects than tensors.
    """
    require_reader(path.name)
    read = _read_pytorch if path.name.startswith(_PYTORCH) else stored_tensors
    tensors: dict[str, StoredTensor] = {}
    for name in parts_of_weights(path):
        tensors |= read(path.with_name(name))
    return tensors


def _read_pytorch(path):
    """The tensors of a pickle. PyTorch reads it without running code: it refuses all other objects."""
    import torch  # pyright: ignore[reportMissingImports]

    if not path.is_file():
        raise ValueError(f"{path.name} is missing")
    try:
        # Files of old versions of PyTorch, which are no ZIP archives, cannot be memory-mapped.
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except MemoryError:
        raise
    except Exception as error:  # PyTorch's errors have no common class.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path.name} must contain tensors only ({reason})") from error
    if not isinstance(tensors, dict) or not all(isinstance(x, torch.Tensor) for x in tensors.values()):
        raise ValueError(f"{path.name} must contain a dict of tensors")
    return {name: StoredTensor(tuple(x.shape), lambda x=x: x.float().numpy()) for name, x in tensors.items()}
