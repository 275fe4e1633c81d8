import io
import json
from types import SimpleNamespace

import pytest

from keras_transformer.cli import main
from keras_transformer.cli.translate_files import _as_json, _as_rows, _as_text
from keras_transformer.translate.translation import Translation
from keras_transformer.translate.translator import Translator


class Shouting(Translator):
    """Translates to capital letters."""

    def _sentences(self, lines, numbers, directions):
        return lines, [len(line) for line in lines]

    def _translate_batch(self, sentences, n_best):
        return [[Translation(line.upper(), -1.0)] for line in sentences]


@pytest.fixture
def translate(monkeypatch, capsys):
    """Translates typed lines; gives what had been printed at each reading of a line, and at the end."""

    def translate(*options, terminal=False):
        printed, lines = [], iter([b"one\n", b"two\n", b"three\n"])

        class Typed(io.RawIOBase):
            def readable(self):
                return True

            def readinto(self, buffer):
                printed.append(capsys.readouterr().out)
                line = next(lines, b"")
                buffer[: len(line)] = line
                return len(line)

        stdin = SimpleNamespace(buffer=io.BufferedReader(Typed()), isatty=lambda: terminal)
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("keras_transformer.cli.translator_options.load_translator", lambda *_, **__: Shouting())
        assert main(["translate", "DIR", *options]) == 0
        return [*printed, capsys.readouterr().out]

    return translate


@pytest.mark.parametrize(("options", "terminal"), [(["--line_by_line"], False), ([], True)])
def test_each_line_is_answered_before_the_next_is_read(translate, options, terminal):
    assert translate(*options, terminal=terminal) == ["", "ONE\n", "TWO\n", "THREE\n", ""]


def test_lines_of_a_pipe_are_translated_together(translate):
    assert translate() == ["", "", "", "", "ONE\nTWO\nTHREE\n"]


def test_lines_keep_their_numbers(translate, capsys):
    assert '"source": "two", "translations": [{"text": "TWO"' in translate("--line_by_line", "--json")[2]


def test_a_translation_is_one_line_for_every_reader():
    text = "".join(f"{i}{mark}" for i, mark in enumerate("\n\r\x0b\x0c\x1c\x85\u2028\u2029\t"))
    translation = Translation(text, -1.0, alternatives=(Translation(text, -2.0),))
    assert len(_as_text(1, text, translation).splitlines()) == 1
    rows = _as_rows(1, text, translation).splitlines()
    assert [row.split("\t")[:2] for row in rows] == [["1", "-1.0000"], ["1", "-2.0000"]]
    assert all(len(row.split("\t")) == 3 for row in rows)
    (line,) = _as_json(1, text, translation).splitlines()
    found = json.loads(line)
    assert found["source"] == found["translations"][1]["text"] == text
