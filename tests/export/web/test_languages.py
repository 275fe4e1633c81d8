"""The languages of a model in JavaScript: the same tokens, and the same languages refused, as in Python."""

import itertools
import json
import pathlib
import shutil
import subprocess

import pytest

from keras_transformer.export.web import export
from keras_transformer.storage.languages import Languages

STATIC = pathlib.Path(export.__file__).parent / "static"
TOKENS = {"en": 4, "de": 5, "fr": 6}
MODELS = {
    "unknown": Languages(),
    "one pair": Languages("en", "de"),
    "forced": Languages(source_tokens=TOKENS, target_tokens=TOKENS, forces_target=True),
    "forced, with a default": Languages("fr", "en", TOKENS, TOKENS, forces_target=True),
    "both tokens in the source": Languages("fr", None, TOKENS, TOKENS),
    "sources without tokens": Languages("en", "de", dict.fromkeys(TOKENS), TOKENS),
    "sources without tokens or default": Languages(source_tokens=dict.fromkeys(TOKENS), target_tokens=TOKENS),
    "any source": Languages(target_tokens=TOKENS),
    "any source, with a default": Languages("gem", target_tokens=TOKENS),
    "a start of the source": Languages(target_tokens=TOKENS, source_start=(7, 8)),
    "a start and forced": Languages(source_tokens=TOKENS, target_tokens=TOKENS, forces_target=True, source_start=(7,)),
    "one target": Languages(source_tokens=TOKENS, target_tokens={"en": 4}),
}
#: Reads the records of models and pairs of codes, and writes what each model makes of each pair.
PROGRAM = """
import { readFileSync } from "node:fs";
import { Languages } from "./languages.mjs";
const { records, pairs } = JSON.parse(readFileSync(0, "utf8"));
const prefixes = (languages, pair) => {
  try {
    const { sourcePrefix, targetPrefix } = languages.prefixes(...pair);
    return [sourcePrefix, targetPrefix];
  } catch (error) {
    return error.message;
  }
};
console.log(JSON.stringify(records.map((record) => {
  const languages = new Languages(record);
  return {
    found: pairs.map((pair) => prefixes(languages, pair)),
    pairs: languages.sources.flatMap((source) => languages.targets(source).map((target) => [source, target])),
  };
})));
"""


def test_the_tokens_are_those_of_python(tmp_path):
    if not shutil.which("node"):
        pytest.skip("needs node")
    shutil.copy(STATIC / "languages.js", tmp_path / "languages.mjs")
    (tmp_path / "program.mjs").write_text(PROGRAM, encoding="utf-8")
    pairs = [*itertools.product([None, *TOKENS, "nl", "constructor"], repeat=2)]
    data = {"records": [languages.to_record() for languages in MODELS.values()], "pairs": pairs}
    options = {"input": json.dumps(data), "capture_output": True, "text": True, "check": True, "encoding": "utf-8"}
    answer = json.loads(subprocess.run(["node", tmp_path / "program.mjs"], **options).stdout)
    for (name, languages), one in zip(MODELS.items(), answer, strict=True):
        for pair, found in zip(pairs, one["found"], strict=True):
            assert found == expected(languages, *pair), (name, pair)
        directions = [[direction.source, direction.target] for direction in languages.directions()]
        assert one["pairs"] == (directions or [[languages.source, languages.target]]), name


def expected(languages, source, target):
    """The tokens, or the message of the error with the names of JavaScript."""
    try:
        direction = languages.direction(source, target)
    except ValueError as error:
        message = str(error).replace("source_language", "sourceLanguage").replace("target_language", "targetLanguage")
        return message.replace("'", '"')
    return [[*direction.source_prefix], [*direction.target_prefix]]
