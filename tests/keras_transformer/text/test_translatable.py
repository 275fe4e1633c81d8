import json
import pathlib

import pytest

from keras_transformer.text.translatable import is_translatable, kept_parts, split_markers

#: What is no language, for Python and JavaScript.
VECTORS = json.loads(pathlib.Path(__file__).with_name("translatable.json").read_text(encoding="utf-8"))


def test_lines_without_language():
    assert [line for line in VECTORS["kept"] if is_translatable(line)] == []
    assert [line for line in VECTORS["translated"] if not is_translatable(line)] == []


def test_parts_without_language():
    assert {line: [line[begin:end] for begin, end in kept_parts(line)] for line in VECTORS["parts"]} == VECTORS["parts"]


@pytest.mark.parametrize(("language", "line", "sentences"), VECTORS["markers"])
def test_markers(language, line, sentences):
    pieces = [*split_markers(line, language)]
    assert [piece.text for piece in pieces if piece.is_sentence] == sentences
    assert "".join(piece.text for piece in pieces) == line
