"""The model that an export was made from. Clients use this module, so it imports neither TensorFlow nor Keras."""

import hashlib
import json
import zipfile
from pathlib import Path

from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ORIGIN, ModelDirectory, ModelDirectoryError, export_name
from keras_transformer.storage.recorded_folder import hash_of_files, read_json, write_json
from keras_transformer.storage.source_text import ENTRY, SourceText

#: Key of the fingerprint in the file.
_FINGERPRINT = "model_fingerprint"
#: Member of a `.keras` file that contains the date of saving. It is not part of the fingerprint.
_METADATA = "metadata.json"


def write_origin(folder: Path, fingerprint: str | None, source_text: SourceText, languages: Languages) -> None:
    """Records in an export the fingerprint of its model, and what its translator must know of languages and text."""
    record = {_FINGERPRINT: fingerprint, ENTRY: source_text.to_record(), **languages.to_record()}
    write_json(folder / ORIGIN, record)


def export_folder(directory: str | Path, format: str, quantize: str | None = None) -> Path:
    """The folder of an export in a model directory if it exists, otherwise `directory`, which is the export's own then.

    Raises:
        ModelDirectoryError: if the model has changed since the export.
    """
    places = ModelDirectory(directory)
    folder = places.exported(export_name(format, quantize))
    if not folder.is_dir():
        return Path(directory)
    file = folder / ORIGIN
    recorded = read_json(file).get(_FINGERPRINT) if file.is_file() else None  # Older versions did not record it.
    found = fingerprint_of(places.model_file)
    if None not in (recorded, found) and recorded != found:
        raise ModelDirectoryError(
            f"{places.model_file} has changed since the export {folder}. "
            f"Export it again: {export_command(directory, format, quantize)}"
        )
    return folder


def export_command(directory: str | Path, format: str, quantize: str | None = None) -> str:
    """The command that writes an export.

    Example:

    >>> export_command("runs/en-de", "onnx", "int8")
    'keras-transformer export runs/en-de --format onnx --quantize int8'
    """
    command = f"keras-transformer export {directory} --format {format}"
    return f"{command} --quantize {quantize}" if quantize else command


def fingerprint_of(model_file: Path) -> str | None:
    """Hash of the weights and the configuration in a `.keras` file, computed from the checksums in the archive.

    `None` if the file is missing or invalid.
    """
    try:
        with zipfile.ZipFile(model_file) as archive:
            parts = [(part.filename, part.file_size, part.CRC) for part in archive.infolist()]
    except (OSError, zipfile.BadZipFile):
        return None
    return hashlib.sha256(json.dumps(sorted(part for part in parts if part[0] != _METADATA)).encode()).hexdigest()


def hash_of_program(directory: str | Path, runtime: str) -> str:
    """Hash of the files that translate: the model and its tokenizers for `keras`, or the files of an export.

    Args:
        directory: the model directory.
        runtime: name of the runtime; see `load_translator`.

    Returns:
        A hexadecimal SHA-256.
    """
    places = ModelDirectory(directory)
    is_keras = runtime == "keras"
    files = [places.model_file, *places.tokenizer_files] if is_keras else sorted(places.exported(runtime).rglob("*"))
    return hash_of_files(filter(Path.is_file, files))
