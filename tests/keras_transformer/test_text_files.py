import gzip
import io
import os
import sys

import pytest

from keras_transformer.text_files import TextLines, read_lines, readable, split_lines

TEXT = b"one\r\ntwo\n\n\xff\xfe three\x0bfour\rfive\n \r\r\n\r\nno end\r"
LINES = ["one", "two", "", "\ufffd\ufffd three\x0bfour\rfive", " \r", "", "no end\r"]


@pytest.fixture(params=["text", "text.gz"])
def path(request, tmp_path):
    path = tmp_path / request.param
    path.write_bytes(gzip.compress(TEXT) if path.suffix else TEXT)
    return path


def test_lines_of_a_file(path):
    assert read_lines(path) == LINES
    with TextLines(path) as lines:
        assert list(lines) == LINES
        assert lines.share == 1


@pytest.mark.parametrize(
    ("text", "lines"),
    [(b"", []), (b"\n", [""]), (b"\r", ["\r"]), (b"\r\n", [""]), (b"\n\r\n", ["", ""]), (b"a\n\r", ["a", "\r"])],
)
def test_what_ends_a_line(text, lines):
    assert list(split_lines(io.BytesIO(text))) == lines


def test_the_share_read_grows(tmp_path):
    (tmp_path / "text").write_bytes(b"0123456\n" * 1000)
    with TextLines(tmp_path / "text") as lines:
        assert lines.share <= 1e-3
        shares = [lines.share for _ in lines]
    assert shares == pytest.approx([(i + 1) / 1000 for i in range(1000)])


def test_standard_input(monkeypatch):
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
            pytest.raises(ValueError, match=f"Cannot read {tmp_path / name}: {reason}"),
            readable(tmp_path / name) as f,
        ):
            f.read()
        with pytest.raises(ValueError, match=f"Cannot read {tmp_path / name}: {reason}"):
            with TextLines(tmp_path / name) as lines:
                list(lines)


def test_standard_input_stays_open(monkeypatch):
    stream = io.BytesIO(TEXT)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    with TextLines() as lines:
        assert list(lines) == LINES
    assert not stream.closed
