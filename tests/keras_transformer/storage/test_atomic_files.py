import errno
import signal
import subprocess
import sys
import time

import pytest

from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write, clean_up, delete, delete_matching


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_an_old_file_is_replaced(tmp_path):
    path = tmp_path / "model.keras"
    path.write_text("old")
    with atomic_write(path) as temporary:
        assert temporary.parent != path.parent and temporary.suffix == ".keras"
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert contents(tmp_path) == ["model.keras"]


def test_a_folder_is_replaced_with_all_its_files(tmp_path):
    path = tmp_path / "new" / "saved_model"
    for name in ("one", "two"):
        with atomic_write(path) as temporary:
            temporary.mkdir()
            (temporary / name).touch()
    assert contents(tmp_path) == ["new", "new/saved_model", "new/saved_model/two"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "model.keras"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old"
    assert contents(tmp_path) == ["model.keras"]


def test_a_full_disk_names_the_file(tmp_path):
    path, other = tmp_path / "model.keras", tmp_path / "corpus"
    with pytest.raises(OSError, match="No space left on device: '.*/model.keras'"), atomic_write(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left on device: '.*/model.keras'"), atomic_write(path):
        raise RuntimeError("variables.data-00000-of-00001; No space left on device")
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"), atomic_write(path) as temporary:
        with atomic_write(temporary / "tokenizer.model"):
            raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(RuntimeError, match="^other$"), atomic_write(path):
        raise RuntimeError("other")
    with pytest.raises(FileNotFoundError, match="corpus"), atomic_write(path):
        other.read_bytes()
    with pytest.raises(OSError, match="^Not a gzipped file$"), atomic_write(path):
        raise OSError("Not a gzipped file")
    assert contents(tmp_path) == []


def test_an_error_leaves_nothing_where_nothing_was(tmp_path):
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "export") as temporary:
        temporary.mkdir()
        (temporary / "half").touch()
        raise RuntimeError
    assert contents(tmp_path) == []


WRITER = """
import pathlib, sys
from keras_transformer.storage.atomic_files import atomic_write

with atomic_write(pathlib.Path(sys.argv[1]), owns_folder=False) as temporary:
    temporary.write_text("half")
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL])
def test_a_kill_leaves_nothing_in_a_folder_of_others(tmp_path, number):
    """The process ends at the first signal, as if it had started no other process."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "out")], **pipes) as writer:
        assert writer.stdout.readline() == b"open\n" and len(contents(tmp_path)) == 2
        if number is None:
            writer.stdin.close()
        else:
            writer.send_signal(number)
        assert writer.wait(timeout=20) == (0 if number is None else -number)
    end = time.monotonic() + 20
    while any(name.startswith(TEMPORARY) for name in contents(tmp_path)) and time.monotonic() < end:
        time.sleep(0.01)
    assert contents(tmp_path) == (["out"] if number is None else [])


def test_a_link_is_replaced_and_what_it_points_to_is_not(tmp_path):
    for name in ("file", "folder/file"):
        (tmp_path / "disk" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "disk" / name).write_text("theirs")
    for name in ("file", "folder"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    with atomic_write(tmp_path / "file") as temporary:
        temporary.write_text("ours")
    with atomic_write(tmp_path / "folder") as temporary:
        temporary.mkdir()
    assert (tmp_path / "file").read_text() == "ours" and contents(tmp_path / "folder") == []
    assert {(tmp_path / "disk" / name).read_text() for name in ("file", "folder/file")} == {"theirs"}


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "model.keras" / "theirs").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match="model.keras"), atomic_write(tmp_path / "model.keras") as temporary:
        temporary.write_text("ours")
    assert contents(tmp_path) == ["model.keras", "model.keras/theirs"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_path_that_cannot_be_deleted_is_named(tmp_path, monkeypatch, is_folder):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    path = tmp_path / "old"
    path.mkdir() if is_folder else path.touch()
    for name in ("shutil.rmtree", "pathlib.Path.unlink"):
        monkeypatch.setattr(name, refuse)
    with pytest.raises(OSError, match="/old.*permission denied"):
        delete(path)


def test_deletion_follows_patterns(tmp_path):
    for name in ("logs/a.txt", "logs/b.log", "logs/deep/a.txt", "empty/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "other").symlink_to(tmp_path / "logs")
    for folder in ("logs", "empty", "none"):
        delete_matching(tmp_path, folder, "*.txt")
    assert contents(tmp_path) == ["logs", "logs/b.log", "logs/deep", "logs/deep/a.txt", "other"]
    delete_matching(tmp_path, "other", "*.log")
    assert contents(tmp_path) == ["logs", "logs/b.log", "logs/deep", "logs/deep/a.txt"]


def test_a_folder_is_in_its_place_after_a_kill_at_any_time(tmp_path):
    (tmp_path / f"{TEMPORARY}x" / "replaced").mkdir(parents=True)
    (tmp_path / f"{TEMPORARY}x" / "export").mkdir()
    (tmp_path / f"{TEMPORARY}x" / "export" / "new").touch()
    (tmp_path / f"{TEMPORARY}y" / "export").mkdir(parents=True)
    clean_up(tmp_path)
    assert contents(tmp_path) == ["export", "export/new"]
    (tmp_path / f"{TEMPORARY}x" / "replaced").mkdir(parents=True)
    (tmp_path / f"{TEMPORARY}x" / "export").mkdir()
    clean_up(tmp_path)
    assert contents(tmp_path) == ["export", "export/new"]
