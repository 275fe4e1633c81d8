import re

import pytest

from keras_transformer.storage.atomic_files import TEMPORARY
from keras_transformer.storage.resumable_file import ResumableFile

RECORD = {"source": "a hash", "n_best": 2, "search": {"beam_size": 4}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out"


def interrupt(path, text, record=RECORD, error=KeyboardInterrupt):
    """Leaves what a process would that is interrupted behind this text."""
    with pytest.raises(error), ResumableFile(path, record).writing(resume=False) as (file, done):
        assert done == 0
        file.write(text)
        raise error


def test_a_file_appears_when_it_is_complete(path):
    with ResumableFile(path, RECORD).writing(resume=False) as (file, done):
        file.write(b"one\n")
        assert done == 0 and not path.exists()
    assert path.read_bytes() == b"one\n" and [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize(
    ("left", "has_rows", "kept", "done"),
    [
        (b"one\ntwo\n", False, b"one\ntwo\n", 2),
        (b"one\ntwo\nthr", False, b"one\ntwo\n", 2),
        (b"thr", False, b"", 0),
        (b"1\ta\n1\tb\n2\tc\n", True, b"1\ta\n1\tb\n", 1),
        (b"1\ta\n2\tb\n2\tc\n3\td", True, b"1\ta\n", 1),
        (b"1\ta\n1\tb\n", True, b"", 0),
        (b"a\rb\xe2\x80\xa8\n\n", False, b"a\rb\xe2\x80\xa8\n\n", 2),
    ],
)
def test_complete_items_are_kept(path, capsys, left, has_rows, kept, done):
    interrupt(path, left)
    assert re.search(f"{path}.partial.*--resume", capsys.readouterr().err)
    item_of = (lambda row: row.partition(b"\t")[0]) if has_rows else None
    with ResumableFile(path, RECORD, item_of).writing(resume=True) as (file, found):
        assert found == done
        file.write(b"new\n")
    assert path.read_bytes() == kept + b"new\n" and [*path.parent.iterdir()] == [path]


def test_the_old_file_stays_until_then(path):
    path.write_bytes(b"old\n")
    interrupt(path, b"new\n")
    assert path.read_bytes() == b"old\n"
    with ResumableFile(path, RECORD).writing(resume=True):
        pass
    assert path.read_bytes() == b"new\n"


def test_nothing_stays_of_an_interruption_before_the_first_line(path):
    interrupt(path, b"")
    assert not [*path.parent.iterdir()]


def test_resuming_without_an_interruption_starts_at_0(path):
    with ResumableFile(path, RECORD).writing(resume=True) as (file, done):
        assert done == 0
    assert path.read_bytes() == b""


@pytest.mark.parametrize("resume", [False, True])
def test_a_process_killed_before_the_record_was_written_leaves_nothing_in_the_way(path, resume):
    left = path.with_name("out.partial") / f"{TEMPORARY}x"
    left.mkdir(parents=True)
    (left / "record.json").write_text("{")
    with ResumableFile(path, RECORD).writing(resume) as (file, done):
        file.write(b"one\n")
        assert done == 0
    assert path.read_bytes() == b"one\n" and [*path.parent.iterdir()] == [path]


def refuse(path, message, record=RECORD, resume=True):
    with pytest.raises(ValueError, match=message), ResumableFile(path, record).writing(resume):
        pytest.fail("this was to be refused")


def test_an_interrupted_file_is_not_overwritten_or_mixed(path):
    interrupt(path, b"one\n")
    refuse(path, f"{path}.partial .*interrupted.*--resume", resume=False)
    other = {**RECORD, "source": "another", "search": {}}
    refuse(path, f"{path}.partial .*another.*source, search$", other)
    refuse(path, f"{path}.partial .*another.*split$", {**RECORD, "split": None})
    with ResumableFile(path, RECORD).writing(resume=True) as (_, done):
        assert done == 1
        refuse(path, f"{path}.partial .*in use")
    assert path.read_bytes() == b"one\n"


def test_a_folder_of_something_else_is_refused(path):
    folder = path.with_name("out.partial")
    folder.mkdir()
    (folder / "lines").write_bytes(b"my own\n")
    for resume in (False, True):
        refuse(path, f"{folder} .*no interrupted translation", resume=resume)
    assert (folder / "lines").read_bytes() == b"my own\n"


def test_a_damaged_record_is_named(path):
    interrupt(path, b"one\n")
    (path.with_name("out.partial") / "record.json").write_text("{", encoding="utf-8")
    refuse(path, "Unreadable .*out.partial/record.json")
