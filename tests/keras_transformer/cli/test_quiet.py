"""What of standard error arrives while TensorFlow loads, in fresh processes."""

import logging
import subprocess
import sys

import pytest

from keras_transformer.cli.quiet import quiet_tensorflow

NOISE = b"""\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795420467.065873    8112 cudart_stub.cc:31] Could not find cuda drivers on your machine
E0000 00:00:1795420467.065873    8112 cuda_dnn.cc:8310] Unable to register cuDNN factory
"""
LOADING = """
import os, sys
from keras_transformer.cli.quiet import quiet_tensorflow
quiet_tensorflow()
import tensorflow
os.write(2, b"I0000 00:00:1.5 after the load")
"""
ENDINGS = {"whole": "", "an exception": "raise RuntimeError('no AVX')", "a crash": "os.write(2, b'no AVX'); os.abort()"}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_errors_arrive_and_noise_does_not(ending, tmp_path):
    (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, {NOISE!r} + b'E0000 an error\\n')\n{ending}\n")
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, cwd=tmp_path, env={"PATH": ""})
    arrived = done.stderr.decode()
    assert arrived.startswith("E0000 an error\n")
    assert ("no AVX" in arrived) == bool(ending) == bool(done.returncode)
    assert ("after the load" in arrived) == (not ending)
    assert "absl" not in arrived and "cuda" not in arrived


def test_asking_whether_there_is_tensorflow_changes_nothing(tmp_path):
    (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, {NOISE!r})\n")
    program = LOADING.replace(
        "import tensorflow", "import importlib.util; importlib.util.find_spec('tensorflow')\nimport tensorflow"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=tmp_path, env={"PATH": ""})
    assert done.stderr == b"I0000 00:00:1.5 after the load"


def test_noise_arrives_where_it_is_asked_for(tmp_path):
    (tmp_path / "tensorflow.py").write_text(f"import os\nos.write(2, {NOISE!r})\n")
    environment = {"PATH": "", "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, cwd=tmp_path, env=environment)
    assert done.stderr.startswith(NOISE)


def test_a_closed_standard_error_is_allowed(tmp_path):
    (tmp_path / "tensorflow.py").touch()
    program = LOADING.split("os.write")[0] + "print('loaded')"
    shell = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program]
    assert subprocess.run(shell, cwd=tmp_path, stdout=subprocess.PIPE, timeout=60).stdout == b"loaded\n"


def test_retracing_is_not_warned_of(caplog, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    quiet_tensorflow()
    logger = logging.getLogger("tensorflow")
    monkeypatch.setattr(logger, "propagate", True)
    logger.warning("5 out of the last %d calls to %s triggered tf.function retracing.", 5, "search")
    logger.warning("Something else")
    assert caplog.messages == ["Something else"]
