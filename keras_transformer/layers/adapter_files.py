"""Files of adapters: `.npz` files of NumPy with matrices and a record in JSON. Nothing is pickled."""

import json
import pathlib
import zipfile
from typing import Any

import numpy as np

from keras_transformer.layers.adapters import Adapter

_FORMAT = 1


def write_adapter(path, adapter: Adapter, shapes: dict):
    """Writes an adapter, and the shapes of all projections and embeddings of its layer."""
    record = {"format": _FORMAT, "rank": adapter.rank, "alpha": adapter.alpha, "targets": adapter.targets}
    record = np.array(json.dumps({**record, "shapes": shapes}))
    pairs = adapter.matrices.items()
    arrays: dict[str, Any] = {f"{part}/{name}": x for part, ab in pairs for name, x in zip("ab", ab, strict=True)}
    path = pathlib.Path(path)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, adapter=record, **arrays)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_adapter(path) -> tuple[Adapter, dict]:
    """Reads the adapter and the shapes that `write_adapter` wrote.

    Raises:
        ValueError: if the file does not exist, is not valid, or has a newer format.
    """
    rule = f"`path` must be a file of `save_adapter`. Received: path={path}"
    if not zipfile.is_zipfile(path):
        raise ValueError(rule if pathlib.Path(path).exists() else f"{rule} (no such file)")
    try:
        with np.load(path, allow_pickle=False) as file:
            record = json.loads(str(file["adapter"]))
            if record["format"] > _FORMAT:
                raise ValueError(f"of the newer format {record['format']}")
            names = [name.removesuffix("/a") for name in file.files if name.endswith("/a")]
            matrices = {name: tuple(np.asarray(file[f"{name}/{x}"], "float32") for x in "ab") for name in names}
            adapter = Adapter(int(record["rank"]), float(record["alpha"]), record["targets"], matrices)
            return adapter, {name: tuple(shape) for name, shape in record["shapes"].items()}
    except (KeyError, TypeError, AttributeError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{rule} ({error})") from error
