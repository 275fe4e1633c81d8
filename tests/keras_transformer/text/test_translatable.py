import json
import pathlib
import string

import pytest

from keras_transformer.storage.source_text import SourceText
from keras_transformer.text.translatable import is_translatable, kept_parts, split_markers
from keras_transformer.translate.alignment import diagonal
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.translation import Translation

#: What is no language, for Python and JavaScript.
VECTORS = json.loads(pathlib.Path(__file__).with_name("translatable.json").read_text(encoding="utf-8"))


def test_lines_without_language_are_not_translatable():
    assert [line for line in VECTORS["kept"] if is_translatable(line)] == []
    assert [line for line in VECTORS["translated"] if not is_translatable(line)] == []


def test_parts_without_language_are_found():
    assert {line: [line[begin:end] for begin, end in kept_parts(line)] for line in VECTORS["parts"]} == VECTORS["parts"]


@pytest.mark.parametrize(("language", "line", "sentences"), VECTORS["markers"])
def test_markers_are_split_from_sentences(language, line, sentences):
    pieces = [*split_markers(line, language)]
    assert [piece.text for piece in pieces if piece.is_sentence] == sentences
    assert "".join(piece.text for piece in pieces) == line


def known(text):
    """The text, if it is of ASCII letters, digits and some signs."""
    return text if set(text) <= {*string.ascii_letters, *string.digits, *".,!?:;'\"()-"} else None


@pytest.mark.parametrize(("line", "texts"), (VECTORS["sentences"] | VECTORS["in_words"]).items())
def test_protected_sentences_are_joined_unchanged(line, texts):
    """A translation that changes nothing gives the text again."""
    protected = Protection("auto", SourceText("en"), known).split(line)
    assert ([sentence.text for sentence in protected.sentences] if protected else [line]) == texts
    if protected and line in VECTORS["sentences"]:
        translations = [Translation(text, 0.0) for text in texts]
        assert protected.joined(translations, [diagonal(text, text) for text in texts]).text == line
