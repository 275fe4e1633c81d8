"""Completion as bash asks for it: the words of the line in variables, and a call of the function for the command."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from keras_transformer.cli import COMMANDS

SCRIPTS = pathlib.Path(sys.executable).parent
BASH = """
eval "$(register-python-argcomplete keras-transformer)"
for COMP_LINE in "$@"; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMP_WORDS=($COMP_LINE) COMPREPLY=()
    _python_argcomplete keras-transformer
    echo "${COMPREPLY[@]}"
done
"""

NUMBERS = ("layers", "encoder_layers", "decoder_layers", "heads")
#: What is typed -> what it can go on with.
LINES = {
    "keras-transformer tr": ["train", "translate"],
    "keras-transformer help pl": ["plot-attention"],
    "keras-transformer nonsense --o": [],
    "keras-transformer translate --run": ["--runtime"],
    "keras-transformer translate runs --runtime o": ["onnx", "onnx_int8", "onnx_float16"],
    "keras-transformer train --model.num_": [f"--model.num_{name}" for name in NUMBERS],
}


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("bash"), reason="completes in bash")
def test_bash_completes_commands_and_options():
    environment = {**os.environ, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", *LINES], env=environment, capture_output=True, text=True, timeout=300
    )
    found = [line.split() for line in done.stdout.splitlines()]
    assert found == list(LINES.values()), done.stderr


@pytest.mark.parametrize("line", ["keras-transformer ", "keras-transformer train --", "keras-transformer export --"])
def test_no_backend_is_imported(line, command, tmp_path):
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": " ",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "completions"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "PYTHONPROFILEIMPORTTIME": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    completions = (tmp_path / "completions").read_text().split()
    assert "--help" in completions and (line.endswith("--") or {*COMMANDS, "help"} <= {*completions})
    imported = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert "keras_transformer.cli" in imported
    assert not imported & {"keras", "tensorflow", "jax", "torch"}
