"""The rules of `keras_transformer.text.translatable` in JavaScript: the same test vectors as in Python."""

import json
import pathlib
import shutil
import subprocess
import types

import pytest

from keras_transformer.export.web import export
from keras_transformer.export.web.patterns import protection_of
from keras_transformer.storage.source_text import SourceText

STATIC = pathlib.Path(export.__file__).parent / "static"
VECTORS = pathlib.Path(__file__).parents[2] / "keras_transformer/text/translatable.json"
#: Reads rules and texts, and writes what is found.
PROGRAM = """
import { readFileSync } from "node:fs";
import { Protection } from "./protection.mjs";
const { rules, lines, markers, sentences, known } = JSON.parse(readFileSync(0, "utf8"));
const spelled = (text) => ([...text].every((character) => known.includes(character)) ? text : null);
const entries = Object.entries(rules).map(([language, rule]) => [language, new Protection(rule, spelled)]);
const protections = Object.fromEntries(entries);
const { en } = protections;
const texts = (line) => en.split(line)?.filter((piece) => piece.text).map(({ text }) => text) ?? [line];
const echoed = (line) => en.split(line)?.map((piece) => piece.joined?.(piece.text) ?? piece).join("") ?? line;
console.log(JSON.stringify({
  translatable: lines.map((line) => en.isTranslatable(line)),
  parts: lines.map((line) => en.keptParts(line).map(([begin, end]) => line.slice(begin, end))),
  markers: markers.map(([language, line]) => protections[language].splitMarkers(line)),
  sentences: sentences.map((line) => [texts(line), echoed(line)]),
}));
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs the program in node."""
    if not shutil.which("node"):
        pytest.skip("needs node")
    folder = tmp_path_factory.mktemp("node")
    shutil.copy(STATIC / "protection.js", folder / "protection.mjs")
    (folder / "program.mjs").write_text(PROGRAM, encoding="utf-8")

    def run(**data):
        options = {"input": json.dumps(data), "capture_output": True, "text": True, "check": True, "encoding": "utf-8"}
        return json.loads(subprocess.run(["node", folder / "program.mjs"], **options).stdout)

    return run


def test_the_page_protects_the_same_parts(run):
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    lines = [*vectors["kept"], *vectors["translated"], *vectors["parts"]]
    tokenizer = types.SimpleNamespace(unknown_ids=[1])
    codes = {language for language, *_ in vectors["markers"]}
    rules = {str(code).replace("None", "null"): protection_of(SourceText(code), tokenizer) for code in codes}
    known = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?:;'\"()-"
    sentences = vectors["sentences"] | vectors["in_words"]
    found = run(rules=rules, lines=lines, markers=vectors["markers"], sentences=[*sentences], known=known)
    assert found["translatable"][: len(vectors["kept"])] == [False] * len(vectors["kept"])
    assert all(found["translatable"][len(vectors["kept"]) :][: len(vectors["translated"])])
    assert found["parts"][-len(vectors["parts"]) :] == [*vectors["parts"].values()]
    for (language, line, expected), pieces in zip(vectors["markers"], found["markers"], strict=True):
        assert [piece["text"] for piece in pieces if piece["isSentence"]] == expected, (language, line)
        assert "".join(piece["text"] for piece in pieces) == line
    assert [texts for texts, _ in found["sentences"]] == [*sentences.values()]
    # A translation that changes nothing gives the text again.
    assert [text for _, text in found["sentences"]][: len(vectors["sentences"])] == [*vectors["sentences"]]
