"""Errors that are found before Keras and a backend are imported, which takes many seconds: one process for all."""

import json
import re

import pytest

from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.config import TrainConfig

PROGRAM = """
import contextlib, io, json, sys
from keras_transformer.cli import main

def outcome(arguments):
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(arguments)
        except SystemExit as exit:
            status = exit.code
    return status, error.getvalue(), sorted({"keras", "tensorflow", "jax", "torch"} & set(sys.modules))

print(json.dumps([outcome(arguments) for arguments in json.loads(sys.argv[1])]))
"""

#: Arguments -> a regular expression for the error.
ERRORS = {
    "translate {finished} none": "none: No such file",
    "translate {folder} {text}": "{folder} .no config.yaml",
    "translate {unfinished} {text}": "{unfinished} .*no finished model",
    "translate {finished} {text} --runtime=saved_model": "SavedModel.*{finished}",
    "translate {finished} {text} --beam_size=0": "`beam_size`.*Received: beam_size=0",
    "translate {finished} {text} --batch_size=0": "`batch_size`.*Received: batch_size=0",
    "evaluate {finished} --source={text} --reference=none": "none: No such file",
    "evaluate {folder} --source={text} --reference={text}": "{folder} .no config.yaml",
    "evaluate {finished} --source={text} --reference={longer}": "`source` and `reference`.*Received: 1 and 2",
    "evaluate {finished} --source={text} --reference={text} --bleu_tokenize=x": "`bleu_tokenize`.*='x'",
    "score {finished} --source={text} --target=none": "none: No such file",
    "score {folder} --source={text} --target={text}": "{folder} .no config.yaml",
    "plot-attention {folder} one --output=x.png": "{folder} .no config.yaml",
    "average {folder}": "{folder} .no config.yaml",
    "export {folder}": "{folder} .no config.yaml",
    "export {finished} --format=x": "`format`.*Received: format='x'",
    "export {finished} --format=onnx --quantize=int8 --source=none --reference=none": "none: No such file",
    "import {folder} --output={new}": "config.json.*missing",
    "import {folder} --output={new} --source={text}": "`source`.*`verify`.*Received: source={text}",
    "import {folder} --output={new} --verify --source=none": "none: No such file",
    "prepare --output={new} --source=none --target=none": "none: No such file",
    "train --output={finished}": "{finished} .*finished model.*--overwrite",
    "train --output={unfinished} --recipe.seed=2": "{unfinished} .*unfinished.*recipe.seed .*2",
    "train --output={text}": "{text} .*is a file",
    "train --output={folder}": "{folder} .*not empty",
    "train --output={new} --source={text} --target=none": "none: No such file",
    "train --output={new} --source={text} --target={longer}": "1 line in {text}, 2 in {longer}",
    "train --output={new} --init_from={folder}": "{folder} .no config.yaml",
    "train --output={new} --prepared={folder}": "tokens.*{folder}",
    "train --output={new} --recipe.epochs=0": "`epochs`.*Received: epochs=0",
    "train --output={new} --model.d_model=63": "`d_model`.*Received: d_model=63",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A folder of other files, one text of a line and one of two, a finished run and an unfinished one."""
    folder = tmp_path_factory.mktemp("errors")
    paths = {name: folder / name for name in ("text", "longer", "finished", "unfinished", "new")} | {"folder": folder}
    paths["text"].write_text("one\n")
    paths["longer"].write_text("one\ntwo\n")
    for name in ("finished", "unfinished"):
        directory = ModelDirectory(paths[name])
        record = TrainConfig(output=str(directory.path)).record()
        directory.write_record(json.loads(json.dumps(record)), finished=name == "finished")
        directory.write_tokenizers((b"",))
        directory.model_file.touch()
    return paths


def test_errors_come_before_the_imports(paths, run_python):
    commands = [command.format(**paths).split() for command in (*ERRORS, "train --help", "export --help")]
    found = json.loads(run_python(PROGRAM, json.dumps(commands)).splitlines()[-1])
    expected = [(2, message.format(**paths)) for message in ERRORS.values()] + [(0, ""), (0, "")]
    for command, (status, error, loaded), (wanted, message) in zip(commands, found, expected, strict=True):
        assert (status, loaded) == (wanted, []) and re.search(message, error), (command, error)
    assert not paths["new"].exists()
