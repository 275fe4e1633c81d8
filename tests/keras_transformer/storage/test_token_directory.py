import json
import pathlib

import numpy as np
import pytest

from keras_transformer.storage.rows import TokenSide
from keras_transformer.storage.token_directory import SIDES, ArrayFile, Statistics, TokenDirectory, write_lines


@pytest.fixture
def directory(tmp_path):
    """A complete folder with two pairs per split."""
    directory = TokenDirectory(tmp_path / "tokens")
    directory.path.mkdir()
    fill(directory)
    return directory


def fill(directory, ids=(4, 5, 3, 6, 3)):
    for split in ("train", "validation"):
        for side in SIDES:
            np.save(directory.ids_file(split, side), np.array(ids, "uint16"))
            np.save(directory.lengths_file(split, side), np.array([3, 2], "int32"))
    directory.write_record({"statistics": {"train": {"pairs": 2}}})


def test_an_array_that_grows_is_a_file_of_numpy(tmp_path):
    with ArrayFile(tmp_path / "ids.npy", "uint16") as file:
        for part in ([1, 2], [], [65535], range(100_000)):
            file.append(np.array(part, "int64") % 65536)
    found = np.load(tmp_path / "ids.npy", mmap_mode="r")
    assert found.dtype == np.uint16
    np.testing.assert_array_equal(found, np.array([1, 2, 65535, *range(100_000)]) % 65536)


def test_an_empty_array_is_written(tmp_path):
    with ArrayFile(tmp_path / "ids.npy", "int32"):
        pass
    assert np.load(tmp_path / "ids.npy").shape == (0,)


def test_sides_are_mapped_into_memory(directory):
    source, target = directory.sides("train")
    assert isinstance(source, TokenSide) and isinstance(source.ids.base, np.memmap)
    assert source.ids.tolist() == target.ids.tolist() == [4, 5, 3, 6, 3]
    assert (source.lengths.tolist(), source.starts.tolist()) == ([3, 2], [0, 3])


def test_the_record_tells_one_set_of_tokens_from_another(directory):
    one = directory.record()["sha256"]
    fill(directory, ids=(4, 5, 3, 7, 3))
    assert directory.record()["sha256"] != one
    fill(directory)
    assert directory.record()["sha256"] == one
    assert directory.statistics("train").kept == 2


@pytest.mark.parametrize("record", ["no JSON", '{"format": 2, "statistics": []}', '{"format": 3, "statistics": []}'])
def test_tokens_with_a_damaged_record_are_deleted(directory, record):
    directory.record_file.write_text(record)
    TokenDirectory(directory.path).delete()
    assert not directory.path.exists()


def test_the_record_is_read_once(directory):
    languages = directory.languages
    directory.record_file.unlink()
    assert directory.splits == ["train"] and directory.languages == languages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "tokens .*no tokens.json"),
        ("{", "tokens.json: JSONDecodeError"),
        ("[]", "tokens.json: not a JSON object"),
        ('{"format": 3}', "tokens.json: it has no statistics"),
        ('{"format": 4}', "tokens .*format 4.* 3"),
    ],
)
def test_a_record_that_cannot_be_used(directory, text, message):
    directory.record_file.unlink() if text is None else directory.record_file.write_text(text)
    with pytest.raises(ValueError, match=message):
        directory.record()


def test_a_record_of_format_1_is_read(directory):
    record = {"format": 1, "statistics": {"train": {"pairs": 3, "alike": 2}}}
    directory.record_file.write_text(json.dumps(record))
    assert directory.statistics("train") == Statistics(pairs=3, identical=2)
    directory.record_file.write_text('{"format": 1, "complete": false}')
    directory.require_free(overwrite=False)


@pytest.mark.parametrize("name", ["train.source.npy", "validation.target.lengths.npy"])
@pytest.mark.parametrize("size", [None, 0, 60, 130])
def test_a_truncated_or_missing_file_is_refused(directory, name, size):
    path = directory.path / name
    data = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(data[:size])
    with pytest.raises(ValueError, match=f"{path} "):
        directory.sides(name.split(".")[0])


def test_replacing_takes_place_at_the_end(directory):
    before = {path.name: path.read_bytes() for path in directory.path.iterdir()}
    with directory.atomic_write() as temporary:
        fill(temporary, ids=(4, 5, 3, 9, 3))
        assert {p.name: p.read_bytes() for p in directory.path.iterdir() if p.is_file()} == before
        mapped, _ = temporary.sides("train")
    assert set(before) == {path.name for path in directory.path.iterdir()}
    assert directory.sides("train")[0].ids.tolist() == mapped.ids.tolist() == [4, 5, 3, 9, 3]


def test_the_record_exists_only_while_the_other_files_are_complete(directory, monkeypatch):
    steps = []
    for name in ("rename", "unlink"):
        move = getattr(pathlib.Path, name)
        monkeypatch.setattr(
            pathlib.Path, name, lambda *args, move=move, **kwargs: steps.append(args[0].name) or move(*args, **kwargs)
        )
    with directory.atomic_write() as temporary:
        fill(temporary)
    assert steps[0] == steps[-1] == "tokens.json" and len(steps) > 10


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, directory, error):
    before = {path.name: path.read_bytes() for path in directory.path.iterdir()}
    for one in (directory, TokenDirectory(tmp_path / "new")):
        with pytest.raises(error), one.atomic_write() as temporary:
            fill(temporary)
            raise error
    assert {path.name: path.read_bytes() for path in directory.path.iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_lines_of_text_stay_lines(directory):
    for side in SIDES:
        with open(directory.text_file(side), "wb") as file:
            write_lines(file, ["one\ntwo", "", f"{side}\r ä\u2028b"])
        assert len(directory.text_file(side).read_text(encoding="utf-8").splitlines()) == 3
    assert directory.validation_lines(9) == (["one two", "", "source  ä b"], ["one two", "", "target  ä b"])
    assert directory.validation_lines(1) == (["one two"], ["one two"])
