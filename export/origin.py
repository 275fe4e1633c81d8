"""Which model an export was made from. Clients need it, so it imports neither TensorFlow nor Keras."""

import hashlib
import json
import zipfile
from pathlib import Path

from keras_transformer.model_directory import ORIGIN, ModelDirectory, ModelDirectoryError

#: What the file of an export's origin says.
_FINGERPRINT = "model_fingerprint"
#: The part of a `.keras` file that holds the date of saving.
_METADATA = "metadata.json"


def write_origin(folder: Path, fingerprint: str | None) -> None:
    """Records in an export which model it was made from.

    Args:
        folder: the export's.
        fingerprint: the model's; see `fingerprint_of`.
    """
    (folder / ORIGIN).write_text(json.dumps({_FINGERPRINT: fingerprint}) + "\n", encoding="utf-8")


def export_folder(directory: str | Path, name: str) -> Path:
    """The folder of an export, which need not be there.

    Args:
        directory: a model directory, or the export's own folder.
        name: the export's; see `keras_transformer.model_directory.export_name`.

    Returns:
        The folder in the model directory if there is one, else `directory` itself.

    Raises:
        ModelDirectoryError: if the model directory holds another model than the one that was exported.
    """
    places = ModelDirectory(directory)
    folder = places.exported(name)
    if not folder.is_dir():
        return Path(directory)
    recorded, found = _recorded(folder), fingerprint_of(places.model_file)
    if None not in (recorded, found) and recorded != found:
        raise ModelDirectoryError(
            f"The export {folder} was made from another model than {places.model_file}, which has changed since. "
            f"Export it again: {export_command(directory, name)}"
        )
    return folder


def export_command(directory: str | Path, name: str) -> str:
    """The command that makes an export.

    Args:
        directory: the model directory.
        name: the export's.

    Example:

    >>> export_command("runs/en-de", "onnx_int8")
    'keras-transformer export runs/en-de --format onnx --quantize int8'
    """
    format, *quantize = name.split("_") if name.startswith("onnx") else [name]
    options = "".join(f" --quantize {kind}" for kind in quantize)
    return f"keras-transformer export {directory} --format {format}{options}"


def fingerprint_of(model_file: Path) -> str | None:
    """Hash of the weights and the configuration in a `.keras` file, from the checksums that it holds of its parts.

    Args:
        model_file: the file.

    Returns:
        Hexadecimal digits; `None` if there is no such file or it is not a whole one.
    """
    try:
        with zipfile.ZipFile(model_file) as archive:
            parts = [(part.filename, part.file_size, part.CRC) for part in archive.infolist()]
    except (OSError, zipfile.BadZipFile):
        return None
    return hashlib.sha256(json.dumps(sorted(part for part in parts if part[0] != _METADATA)).encode()).hexdigest()


def _recorded(folder):
    """The fingerprint in an export; `None` in one that was made before they were recorded."""
    file = folder / ORIGIN
    return json.loads(file.read_text(encoding="utf-8"))[_FINGERPRINT] if file.is_file() else None
