import errno
import os

import pytest

from keras_transformer.model_directory import FORMAT_VERSION, ModelDirectory, ModelDirectoryError, replacing

RECORD = {"dataset": "d", "recipe": {"seed": 1, "epochs": 3}}
HOLD = """
import sys
from keras_transformer.model_directory import ModelDirectory
with ModelDirectory(sys.argv[1]).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path):
    return ModelDirectory(tmp_path / "run")


def finish(directory, record=None):
    directory.write_record(record or RECORD, finished=True)
    directory.model_file.write_bytes(b"weights")
    directory.write_tokenizers((b"subwords",))
    return directory


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_replacing_an_old_file(tmp_path):
    path = tmp_path / "model.keras"
    path.write_text("old")
    with replacing(path) as temporary:
        assert temporary.parent != path.parent and temporary.suffix == ".keras"
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert contents(tmp_path) == ["model.keras"]


def test_replacing_a_folder_as_a_whole(tmp_path):
    path = tmp_path / "new" / "saved_model"
    for name in ("one", "two"):
        with replacing(path) as temporary:
            temporary.mkdir()
            (temporary / name).touch()
    assert contents(tmp_path) == ["new", "new/saved_model", "new/saved_model/two"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "model.keras"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert contents(tmp_path) == ["model.keras"]


def test_a_full_disk_names_the_file(tmp_path):
    path, other = tmp_path / "model.keras", tmp_path / "corpus"
    with pytest.raises(OSError, match="No space left on device: '.*/model.keras'"), replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError, match="corpus"), replacing(path):
        other.read_bytes()
    with pytest.raises(OSError, match="^Not a gzipped file$"), replacing(path):
        raise OSError("Not a gzipped file")
    assert contents(tmp_path) == []


def test_an_error_leaves_nothing_where_nothing_was(tmp_path):
    with pytest.raises(RuntimeError), replacing(tmp_path / "export") as temporary:
        temporary.mkdir()
        (temporary / "half").touch()
        raise RuntimeError
    assert contents(tmp_path) == []


def test_record_round_trip(directory):
    directory.write_record(RECORD, finished=False)
    assert directory.record() == {"format": FORMAT_VERSION, "finished": False, **RECORD}


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "finished: true", "\x80\x81"])
def test_unreadable_record(directory, text):
    directory.path.mkdir()
    directory.config_file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelDirectoryError, match=f"Unreadable {directory.config_file}"):
        directory.record()


def test_no_record(directory):
    with pytest.raises(ModelDirectoryError, match=r"Not a model directory: .*run \(no config.yaml\)"):
        directory.record()


def test_newer_format(directory):
    directory.path.mkdir()
    directory.config_file.write_text(f"format: {FORMAT_VERSION + 6}\nfinished: true\n")
    for ask in (directory.record, directory.require_finished, lambda: directory.is_begun(RECORD, overwrite=True)):
        with pytest.raises(ModelDirectoryError, match=f"has format {FORMAT_VERSION + 6}; .* up to {FORMAT_VERSION}$"):
            ask()


def test_separate_tokenizers_replace_a_shared_one(directory):
    directory.write_tokenizers((b"both",))
    assert [file.read_bytes() for file in directory.tokenizer_files] == [b"both", b"both"]
    directory.write_tokenizers((b"one", b"other"))
    assert [file.read_bytes() for file in directory.tokenizer_files] == [b"one", b"other"]
    assert contents(directory.path) == ["source_tokenizer.model", "target_tokenizer.model"]


def test_finished(directory):
    assert finish(directory).require_finished()["dataset"] == "d"


def test_unfinished(directory):
    finish(directory).write_record(RECORD, finished=False)
    with pytest.raises(ModelDirectoryError, match=r"holds no finished model \(its training has not finished\)"):
        directory.require_finished()


@pytest.mark.parametrize("name", ["model.keras", "tokenizer.model"])
def test_a_file_is_missing(directory, name):
    (finish(directory).path / name).unlink()
    with pytest.raises(ModelDirectoryError, match=rf"no finished model \(missing: {directory.path / name}\)"):
        directory.require_finished()


def test_nothing_is_begun(directory):
    assert not directory.is_begun(RECORD)
    directory.path.mkdir()
    assert not directory.is_begun(RECORD)


def test_an_unfinished_run_of_the_same_configuration_is_begun(directory):
    directory.write_record(RECORD, finished=False)
    assert directory.is_begun(RECORD)
    assert not directory.is_begun(RECORD, overwrite=True)


def test_an_unfinished_run_of_another_configuration_names_what_differs(directory):
    directory.write_record(RECORD, finished=False)
    other = {"dataset": "d", "recipe": {"seed": 2, "epochs": 3}, "reverse": True}
    with pytest.raises(ModelDirectoryError, match="another configuration, differing in: ") as caught:
        directory.is_begun(other)
    differences = str(caught.value).split("differing in: ")[1]
    assert differences == "recipe.seed: 1 there, 2 asked for; reverse: None there, True asked for"
    assert not directory.is_begun(other, overwrite=True)


def test_a_finished_run_is_refused(directory):
    finish(directory)
    with pytest.raises(ModelDirectoryError, match="holds a finished model; --overwrite replaces it"):
        directory.is_begun(RECORD)
    assert not directory.is_begun(RECORD, overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_refused(directory, overwrite):
    directory.path.mkdir()
    (directory.path / "thesis.tex").touch()
    with pytest.raises(ModelDirectoryError, match="is not empty and is no model directory"):
        directory.is_begun(RECORD, overwrite)


def test_clear_leaves_other_files(directory):
    finish(directory)
    for folder in (directory.checkpoints, directory.logs, directory.exported("onnx")):
        folder.mkdir(parents=True)
    (directory.path / "notes.txt").touch()
    directory.clear()
    assert contents(directory.path) == ["notes.txt"]


def test_locked_twice_in_one_process(directory):
    with directory.locked():
        (directory.path / "kept").touch()
        with pytest.raises(ModelDirectoryError, match="is in use by another process"), directory.locked():
            pass
    with directory.locked():
        assert contents(directory.path) == ["kept"]


def test_locked_by_another_process_until_it_is_killed(directory):
    import subprocess
    import sys

    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, directory.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ModelDirectoryError, match="in use"), directory.locked():
            pass
        holder.kill()
        holder.wait()
    with directory.locked():
        assert directory.path.is_dir()


def test_folders_that_stay_empty_are_removed(tmp_path):
    (tmp_path / "kept").mkdir()
    with pytest.raises(RuntimeError), ModelDirectory(tmp_path / "kept" / "a" / "b").locked():
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["kept"]


def test_a_directory_that_stays_empty_is_removed(directory):
    with pytest.raises(RuntimeError), directory.locked():
        raise RuntimeError
    assert not directory.path.exists()


def test_a_directory_that_is_a_file(directory):
    directory.path.write_text("text")
    with pytest.raises((ModelDirectoryError, OSError), match=str(directory.path)):
        directory.is_begun(RECORD)
