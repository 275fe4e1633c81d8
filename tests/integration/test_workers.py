"""Two workers on one machine end like one process, although one is stopped and then each is killed."""

import json
import os
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.saving import load_model

#: In seconds. Workers that wait for each other would never end.
TIMEOUT = 300
OPTIONS = {
    "model.dropout": 0,
    "tokens_per_device": 192,
    "recipe.max_steps": 40,
    "recipe.validate_every": 20,
    "recipe.bleu_sentences": 3,
}

pytestmark = pytest.mark.nightly


@pytest.fixture
def start(tmp_path, command, arguments):
    """Starts both workers, each with its own log file."""
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        workers = [f"127.0.0.1:{free.getsockname()[1]}" for free in (one, other)]
    processes = []

    def start():
        for i in range(2):
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}}
            environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
            with open(tmp_path / f"log{i}", "wb") as log:
                processes.append(
                    subprocess.Popen(
                        [*command, *arguments(tmp_path / "two", **OPTIONS)], env=environment, stdout=log, stderr=log
                    )
                )
        return processes[-2:]

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("interrupted", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_two_workers_are_one(start, tmp_path, arguments, interrupted):
    def log(i):
        return (tmp_path / f"log{i}").read_text()

    def checkpoints():
        return {path.name for path in (tmp_path / "two" / "checkpoints").glob("step-*")}

    def wait_for_another(processes):
        before = checkpoints()
        while not checkpoints() - before and all(process.poll() is None for process in processes):
            time.sleep(0.01)

    def interrupt():
        chief, other = start()
        wait_for_another((chief, other))
        other.send_signal(signal.SIGTERM)
        assert (chief.wait(TIMEOUT), other.wait(TIMEOUT)) == (143, 143), log(0)
        for killed in (1, 0):
            processes = start()
            wait_for_another(processes)
            processes[killed].kill()
            left = 1 - killed
            assert processes[left].wait(TIMEOUT) == 1
            assert re.search(f"worker {left} .*another worker", log(left)) and "Traceback" not in log(left)
        assert len(checkpoints()) >= 2

    if interrupted:
        interrupt()
    assert [process.wait(TIMEOUT) for process in start()] == [0, 0], log(0) + log(1)
    assert all("TF_CONFIG" in log(i) for i in range(2))
    assert [re.search(f"Wrote the model .*{tmp_path / 'two'}", log(i)) is not None for i in range(2)] == [True, False]
    assert re.search("training batches: 6 rows .*8 rows.*2 micro-batches", log(0))
    assert "devices: 2 x CPU\n" in log(0)
    assert main(arguments(tmp_path / "one", **OPTIONS)) == 0
    one, two = (load_model(tmp_path / name / "model.keras").get_weights() for name in ("one", "two"))
    for ours, theirs in zip(two, one, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    one, two = (
        json.loads((tmp_path / name / "checkpoints" / "validations.json").read_text()) for name in ("one", "two")
    )
    assert any(found["bleu"] > 0 for found in one)
    for name in ("loss", "bleu"):
        assert [found[name] for found in two] == pytest.approx([found[name] for found in one], abs=1e-5)
