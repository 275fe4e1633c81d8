"""`kill -9` at random moments, in checkpoints too: the run ends, bit for bit, as one that nobody disturbed."""

import pathlib
import random
import signal
import subprocess
import time

import numpy as np
import pytest

from keras_transformer.saving import load_model
from keras_transformer.training.checkpoints import CheckpointFiles

KILLS = 20
STEPS = 600
OPTIONS = {
    "recipe.epochs": 100,
    "recipe.max_steps": STEPS,
    "recipe.validate_every": 50,
    "recipe.keep_checkpoints": 2,
    "recipe.weights": "average",
    "recipe.warmup_steps": 100,
    "recipe.peak_learning_rate": 0.01,
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


@pytest.fixture
def start(command, arguments):
    """Starts the command in a process of its own."""

    def start(output, log):
        return subprocess.Popen([*command, *arguments(output, **OPTIONS)], stdout=log, stderr=log)

    return start


def wait_for(process, condition):
    """Until it is so or the process has ended."""
    while process.poll() is None and not condition():
        time.sleep(0.001)


def kill_somewhere(process, checkpoints: pathlib.Path, draw: random.Random) -> str:
    """Kills the process at its start, in its steps or in the writing of a checkpoint; says which."""
    moment = draw.choice(["start", "steps", "steps", "checkpoint", "checkpoint"])
    before = set(checkpoints.glob("step-*"))
    if moment == "start":
        time.sleep(draw.uniform(0.0, 10.0))
    else:
        wait_for(process, lambda: set(checkpoints.glob("step-*")) - before)
        time.sleep(draw.uniform(0.0, 2.0))
    if moment == "checkpoint":
        wait_for(process, lambda: any(checkpoints.glob(".tmp-*")))
        time.sleep(draw.uniform(0.0, 0.1))
    process.send_signal(signal.SIGKILL)
    return moment if process.wait() == -signal.SIGKILL else "ended"


def final(path):
    """What a run leaves: weights, and of its last checkpoint all variables, the optimizer's too, and the draws."""
    last = load_model(path / "checkpoints" / f"step-{STEPS:08d}.keras")
    variables = [*load_model(path / "model.keras").weights, *last.weights, *last.optimizer.variables]
    return [variable.numpy() for variable in variables], CheckpointFiles(path / "checkpoints").read(STEPS).random


def test_twenty_kills(start, tmp_path):
    draw = random.Random(3)
    moments = []
    with open(tmp_path / "log", "wb") as log:
        assert start(tmp_path / "unbroken", log).wait() == 0
        while len(moments) < KILLS:
            moments.append(kill_somewhere(start(tmp_path / "killed", log), tmp_path / "killed" / "checkpoints", draw))
            print(len(moments), moments[-1], CheckpointFiles(tmp_path / "killed" / "checkpoints").steps(), flush=True)
        assert start(tmp_path / "killed", log).wait() == 0
    assert "ended" not in moments and {"start", "steps", "checkpoint"} == set(moments)
    (ours, our_draws), (theirs, their_draws) = final(tmp_path / "killed"), final(tmp_path / "unbroken")
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert our_draws == their_draws
    assert not list((tmp_path / "killed").rglob(".tmp-*"))
