import shutil
import zipfile

import pytest

from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.origin import export_folder, fingerprint_of, write_origin
from keras_transformer.storage.source_text import SourceText


def write_model(file, weights, date="today"):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("metadata.json", date)
        archive.writestr("model.weights.h5", weights)


@pytest.fixture
def directory(tmp_path):
    """A model directory with an int8 ONNX export of its model."""
    directory = ModelDirectory(tmp_path)
    write_model(directory.model_file, "weights")
    directory.exported("onnx_int8").mkdir(parents=True)
    write_origin(directory.exported("onnx_int8"), fingerprint_of(directory.model_file), SourceText(), Languages())
    return directory


def test_an_export_of_the_model_is_found(directory):
    write_model(directory.model_file, "weights", date="tomorrow")
    assert export_folder(directory.path, "onnx", "int8") == directory.exported("onnx_int8")


def test_an_export_of_another_model_is_refused(directory):
    write_model(directory.model_file, "other weights")
    command = f"keras-transformer export {directory.path} --format onnx --quantize int8"
    with pytest.raises(
        ModelDirectoryError, match=f"{directory.model_file} .*changed.*{directory.exported('onnx_int8')}.*: {command}"
    ):
        export_folder(directory.path, "onnx", "int8")


def test_an_export_elsewhere_is_not_compared(directory, tmp_path):
    shutil.copytree(directory.exported("onnx_int8"), tmp_path / "elsewhere")
    write_model(directory.model_file, "other weights")
    assert export_folder(tmp_path / "elsewhere", "onnx", "int8") == tmp_path / "elsewhere"
    directory.model_file.unlink()
    assert export_folder(directory.path, "onnx", "int8") == directory.exported("onnx_int8")


def test_a_damaged_record_is_named(directory):
    (directory.exported("onnx_int8") / "origin.json").write_text("{")
    with pytest.raises(ValueError, match="Unreadable .*origin.json"):
        export_folder(directory.path, "onnx", "int8")


def test_an_export_that_does_not_say_its_model_is_taken(directory):
    (directory.exported("onnx_int8") / "origin.json").unlink()
    write_model(directory.model_file, "other weights")
    assert export_folder(directory.path, "onnx", "int8") == directory.exported("onnx_int8")
