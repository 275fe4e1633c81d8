import gzip

import pytest

from keras_transformer.text.files import read_lines
from keras_transformer.training.data_config import DataConfig
from keras_transformer.training.datasets import load_corpus, text


@pytest.fixture
def write(tmp_path):
    """Writes lines to a file, gzipped if its name ends in .gz."""

    def write(name, lines, end="\n"):
        path = tmp_path / name
        data = "".join(line + end for line in lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def pairs(part):
    """The pairs, after checking that they can be iterated twice and that `count` is right."""
    found = list(part)
    assert found == list(part) and len(found) == part.count
    return found


def numbered(prefix, count, start=0):
    return [f"{prefix} {i}" for i in range(start, start + count)]


def test_plain_and_gzipped_files_in_order(write):
    config = DataConfig(
        source=[write("a.en", numbered("a", 3)), write("b.en.gz", numbered("b", 2))],
        target=[write("a.de.gz", numbered("A", 3)), write("b.de", numbered("B", 2))],
        validation_source=write("v.en", ["v"]),
        validation_target=write("v.de", ["V"]),
    )
    found = load_corpus(config)
    expected = list(zip(numbered("a", 3) + numbered("b", 2), numbered("A", 3) + numbered("B", 2), strict=True))
    assert pairs(found.train) == expected
    assert pairs(found.validation) == [("v", "V")]


def test_every_hundredth_line_is_held_out(write):
    config = DataConfig(source=write("s", numbered("s", 250)), target=write("t", numbered("t", 250)))
    found = load_corpus(config)
    train, validation = pairs(found.train), pairs(found.validation)
    assert validation == [("s 99", "t 99"), ("s 199", "t 199")]
    assert sorted(train + validation) == sorted(zip(numbered("s", 250), numbered("t", 250), strict=True))
    assert not set(train) & set(validation)


def test_held_out_lines_are_limited(write, monkeypatch):
    monkeypatch.setattr(text, "HELD_OUT_MOST", 2)
    found = load_corpus(DataConfig(source=write("s", numbered("s", 400)), target=write("t", numbered("t", 400))))
    assert pairs(found.validation) == [("s 99", "t 99"), ("s 199", "t 199")]
    assert len(pairs(found.train)) == 398


def test_a_last_line_without_end_counts(write):
    one = write("s", ["a\nb"], end="")
    config = DataConfig(source=one, target=one, validation_source=one, validation_target=one)
    assert pairs(load_corpus(config).train) == [("a", "a"), ("b", "b")]


def test_windows_line_ends(write):
    one, other = write("s", ["a", "b"], end="\r\n"), write("t", ["A", "B"])
    config = DataConfig(source=one, target=other, validation_source=one, validation_target=other)
    assert pairs(load_corpus(config).train) == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_unaligned_files_are_refused(write, suffix):
    one, other = write("s" + suffix, numbered("s", 3)), write("t", numbered("t", 4))
    with pytest.raises(ValueError, match=f"number of lines.*Received: 3 lines in {one}, 4 in {other}"):
        load_corpus(DataConfig(source=one, target=other))


def test_files_must_align_one_by_one(write):
    sources = [write("s1", numbered("s", 3)), write("s2", numbered("s", 1))]
    targets = [write("t1", numbered("t", 2)), write("t2", numbered("t", 2))]
    with pytest.raises(ValueError, match="number of lines.*Received: 3 .*s1, 2 .*t1"):
        load_corpus(DataConfig(source=sources, target=targets))


def test_an_empty_file_is_refused(write):
    empty = write("s", [])
    with pytest.raises(ValueError, match=f"{empty} .*empty"):
        load_corpus(DataConfig(source=empty, target=empty))


def test_a_missing_file_is_refused(write):
    with pytest.raises(ValueError, match="/no/such/file.*No such file"):
        load_corpus(DataConfig(source="/no/such/file", target=write("t", ["t"])))


def test_a_folder_is_no_file(write, tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}.*Is a directory"):
        load_corpus(DataConfig(source=str(tmp_path), target=write("t", ["t"])))


def test_too_few_lines_to_hold_some_out(write):
    one, other = write("s", numbered("s", 99)), write("t", numbered("t", 99))
    with pytest.raises(ValueError, match="`validation_source` .*100 lines.*Received: 99"):
        load_corpus(DataConfig(source=one, target=other))


DAMAGES = {
    "plain text": lambda data: b"plain text",
    "truncated": lambda data: data[:-9],
    "altered": lambda data: data[:12] + b"\xff" * 8 + data[20:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_broken_gzip_file_is_refused(write, tmp_path, damage):
    path = tmp_path / "s.gz"
    path.write_bytes(damage(gzip.compress("".join(f"{i}\n" for i in range(1000)).encode())))
    for read in (read_lines, lambda path: load_corpus(DataConfig(source=str(path), target=write("t", ["t"])))):
        with pytest.raises(ValueError, match=f"{path}: "):
            read(path)


def test_unaligned_validation_files_are_refused(write):
    one, other = write("s", ["s"]), write("v", ["v", "w"])
    config = DataConfig(source=one, target=one, validation_source=one, validation_target=other)
    with pytest.raises(ValueError, match="number of lines.*Received: 1 .* 2 "):
        load_corpus(config)


@pytest.mark.parametrize("name", ["s", "s.gz"])
def test_read_lines(write, name):
    assert read_lines(write(name, ["a", "", "b "])) == ["a", "", "b "]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_files_in_another_encoding_are_read(write, tmp_path, encoding):
    lines = [f"zwölf \u00ff {i}" for i in range(200)]
    (tmp_path / "s").write_bytes("\n".join(lines).encode(encoding))
    path = str(tmp_path / "s")
    found = load_corpus(DataConfig(source=path, target=path, encoding=encoding))
    assert pairs(found.validation) == [(lines[99], lines[99]), (lines[199], lines[199])]
    with pytest.raises(ValueError, match=f"{path}: line 1 .*utf-8"):
        load_corpus(DataConfig(source=path, target=path))


def test_read_lines_of_an_empty_file(write):
    assert read_lines(write("s", [])) == []


def test_read_lines_of_a_missing_file(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path / 'none'}.*No such file"):
        read_lines(tmp_path / "none")
