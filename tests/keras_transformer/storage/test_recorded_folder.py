import pytest

from keras_transformer.apps.distillation.folder import DistillationFolder
from keras_transformer.storage.atomic_files import TEMPORARY
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.recorded_folder import ModelDirectoryError, hash_of_files, read_json, write_json
from keras_transformer.storage.resumable_file import ResumableFile
from keras_transformer.storage.token_directory import TokenDirectory


@pytest.fixture(params=[ModelDirectory, TokenDirectory, DistillationFolder, lambda path: ResumableFile(path, {})])
def folder(request, tmp_path):
    return request.param(tmp_path / "folder")


def test_a_folder_without_files_is_free(folder):
    assert folder.is_free()
    (folder.path / f"{TEMPORARY}x").mkdir(parents=True)  # A killed process has left it.
    assert folder.is_free()
    folder.record_file.touch()
    assert not folder.is_free()


def test_a_folder_of_other_files_is_not_free(folder):
    folder.path.mkdir()
    (folder.path / "thesis.tex").touch()
    with pytest.raises(ModelDirectoryError, match=f"{folder.path} is not empty and .* .no {folder.record_name}"):
        folder.is_free()


def test_a_file_is_not_a_free_folder(folder):
    folder.path.touch()
    with pytest.raises(ModelDirectoryError, match=f"{folder.path} is not empty"):
        folder.is_free()


def test_a_missing_record_is_named(folder):
    for reason in ("; no such directory", ""):
        with pytest.raises(
            ModelDirectoryError, match=f"Not a {folder.kind}: {folder.path} .no {folder.record_name}{reason}.$"
        ):
            folder.record()
        folder.path.mkdir(exist_ok=True)


def test_one_process_writes_at_a_time(folder):
    with folder.locked(), pytest.raises(ModelDirectoryError, match=f"{folder.path} is in use"), folder.locked():
        pass
    assert not folder.path.exists()


def test_json_round_trip(tmp_path):
    write_json(tmp_path / "a.json", {"text": "ä\ud800"})
    assert read_json(tmp_path / "a.json") == {"text": "ä\ud800"}


def test_a_hash_depends_on_each_file_and_on_their_order(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    orders = [(tmp_path / "a", tmp_path / "b"), (tmp_path / "b", tmp_path / "a"), (tmp_path / "a",)]
    assert len(set(map(hash_of_files, orders))) == 3
