import gzip
import io
import os
import random
import re
import sys

import pytest

from keras_transformer.cli import main
from keras_transformer.text.files import TextLines, read_lines, readable, split_lines

LINES = ["one", "two", "", "dreißig three\x0bfour\rfive\u2028\x85six", " \r", "", "no end\r"]
TEXT = "one\r\ntwo\n\ndreißig three\x0bfour\rfive\u2028\x85six\n \r\r\n\r\nno end\r".encode()


@pytest.fixture(params=["text", "text.gz"])
def path(request, tmp_path):
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(TEXT) if path.suffix else TEXT)
    return path


def test_lines_of_a_file_are_read(path):
    assert read_lines(path) == LINES
    with TextLines(path) as lines:
        assert list(lines) == LINES
        assert lines.share == 1


@pytest.mark.parametrize(
    ("text", "lines"),
    [(b"", []), (b"\n", [""]), (b"\r", ["\r"]), (b"\r\n", [""]), (b"\n\r\n", ["", ""]), (b"a\n\r", ["a", "\r"])],
)
def test_a_line_feed_ends_a_line_with_or_without_return(text, lines):
    assert list(split_lines(io.BytesIO(text))) == lines


def test_the_share_read_grows(tmp_path):
    (tmp_path / "text").write_bytes(b"0123456\n" * 100_000)
    with TextLines(tmp_path / "text") as lines:
        assert lines.share <= 1e-3
        shares = [lines.share for _ in lines]
    assert shares == pytest.approx([(i + 1) / 100_000 for i in range(100_000)], abs=0.02)  # It is read in blocks.


def test_lines_of_standard_input_are_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    with TextLines() as lines:
        assert list(lines) == LINES
        assert lines.share is None


def test_a_pipe_has_no_size(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
    os.write(descriptor, b"one\n")
    with TextLines(tmp_path / "pipe") as lines:
        assert next(iter(lines)) == "one" and lines.share is None
    os.close(descriptor)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "cut.gz").write_bytes(gzip.compress(TEXT)[:-9])
    (tmp_path / "plain.gz").write_bytes(TEXT)
    for name, reason in (("none", "No such file"), ("cut.gz", "Compressed"), ("plain.gz", "Not a gzipped"), (".", "")):
        with (
            pytest.raises(ValueError, match=f"{tmp_path / name}: {reason}"),
            readable(tmp_path / name) as f,
        ):
            f.read()
        with pytest.raises(ValueError, match=f"{tmp_path / name}: {reason}"):
            with TextLines(tmp_path / name) as lines:
                list(lines)


def test_standard_input_stays_open(monkeypatch):
    stream = io.BytesIO(TEXT)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    with TextLines() as lines:
        assert list(lines) == LINES
    assert not stream.closed


def test_a_file_stays_open_when_its_lines_are_read():
    stream = io.BytesIO(TEXT)
    assert next(split_lines(stream)) == "one" and list(split_lines(stream)) == []
    assert not stream.closed


def test_lines_may_outlive_their_file(tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    with TextLines(tmp_path / "text") as lines:
        iterator = iter(lines)
        assert next(iterator) == "one"
    iterator.close()


#: In the first two a byte of a line end is one of another character, too.
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp1252", "GB18030", "utf-8-sig", "UTF8"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_lines_in_other_encodings_are_read(tmp_path, encoding, suffix):
    lines = ["zwölf", "", "\u010a\u0a00 drei\x0b" if encoding.lower().startswith(("u", "g")) else "drei\x0b", "end"]
    data = "\r\n".join(lines).encode(encoding)
    path = tmp_path / f"text{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    assert read_lines(path, encoding) == lines


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-be", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path, encoding):
    (tmp_path / "text").write_bytes("\ufefftwo\n\ufeffthree\n".encode(encoding.removesuffix("-sig")))
    assert read_lines(tmp_path / "text", encoding) == ["two", "\ufeffthree"]


GERMAN = "two\n" * 3000 + "Zwei weiße Männer sind im Freien.\nMehrere Männer hören zu.\n"
FOREIGN = {
    "cp1252": (GERMAN.encode("latin-1"), 3001),
    "cp1251": ("один\n\nдва молодых белых мужчины\n".encode("cp1251"), 1),
    "a mark": (GERMAN.encode("utf-16"), 1),
    "zeros": (GERMAN.encode("utf-16-le"), 1),
    "four bytes": (GERMAN.encode("utf-32-le"), 1),
    "one bad line": (GERMAN.encode() + b"\nzw\xf6lf\n", GERMAN.count("\n") + 2),
    "gzip": (gzip.compress(TEXT), 1),
    "binary": (b"two\n" + random.Random(1).randbytes(4000), 2),
    "only zeros": (bytes(999), 1),
    "the end is cut": (b"two\nthr\xc3", 2),
}


@pytest.mark.parametrize(("data", "number"), FOREIGN.values(), ids=FOREIGN)
def test_bytes_that_are_not_utf_8(tmp_path, monkeypatch, data, number):
    (tmp_path / "text").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    for path, name in ((tmp_path / "text", tmp_path / "text"), (None, "standard input")):
        with TextLines(path) as lines, pytest.raises(ValueError) as caught:
            list(lines)
        assert re.search(rf"{name}: line {number} is not utf-8 text.*`--encoding cp1252`.*\.gz", str(caught.value))


def test_nul_characters_are_removed(tmp_path):
    (tmp_path / "text").write_bytes(b"one\x00two\n\x00\n")
    assert read_lines(tmp_path / "text") == ["onetwo", ""]


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (
            "zwölf\n".encode("utf-16-le"),
            "utf-16",
            "BOM.*Received: encoding='utf-16'|line 1 is not utf-16 text",  # From Python 3.13.
        ),
        ("eins\nzwölf".encode("utf-16")[:-1], "utf-16", "line 2 is not utf-16 text"),
        ("eins\nzwölf".encode(), "ascii", "line 2 is not ascii text"),
        (b"", "klingon", "`encoding`.*Received: encoding='klingon'"),
        (b"", "hex", "`encoding`.*Received: encoding='hex'"),
    ],
)
def test_encodings_that_do_not_fit(tmp_path, data, encoding, message):
    (tmp_path / "text").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_lines(tmp_path / "text", encoding)


COMMANDS = {
    "train": ["--output={}/run", "--source={}/bad", "--target={}/bad", "--tokenizer.vocab_size=270"],
    "prepare": ["--output={}/run", "--source={}/bad", "--target={}/bad", "--tokenizer.vocab_size=270"],
    "evaluate": ["{}/model", "--source={}/bad", "--reference={}/bad"],
    "score": ["{}/model", "--source={}/bad", "--target={}/bad"],
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of TensorFlow.
@pytest.mark.parametrize(("command", "options"), COMMANDS.items(), ids=COMMANDS)
def test_commands_refuse_other_encodings(tmp_path, capsys, command, options):
    (tmp_path / "bad").write_bytes("one\nzwölf\n".encode("latin-1") * 100)
    options = [option.format(tmp_path) for option in options]
    for more, message in (
        ([], f"{tmp_path}/bad: line 2 "),
        (["--encoding=klingon"], "Received: encoding='klingon'"),
    ):
        assert main([command, *options, *more]) == 2
        captured = capsys.readouterr()
        assert message in captured.err and captured.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_a_closed_standard_input_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="standard input is closed"):
        TextLines()
