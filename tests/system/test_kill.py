"""`kill -9` at random times, also while a checkpoint is written: the result is bit-identical to an undisturbed run."""

import json
import random
import signal
import subprocess
import time

import numpy as np
import pytest

from keras_transformer.saving import load_model
from keras_transformer.training.checkpoints import CheckpointFiles

OPTIONS = {
    "recipe.epochs": 100,
    "recipe.validate_every": 50,
    "recipe.keep_checkpoints": 2,
    "recipe.weights": "average",
    "recipe.warmup_steps": 100,
    "recipe.peak_learning_rate": 0.01,
    "recipe.r_drop": 1.0,
    "augmentation.source_sampling": 0.1,
    "augmentation.typos": 0.1,
    "augmentation.merge": 0.2,
}

MOMENTS = ["start", "steps", "steps", "checkpoint", "checkpoint"]

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture
def start(command, arguments, toy_files):
    """Starts a training with the given number of steps in a new process, on two corpora in two stages."""
    files = {"source": str(toy_files / "train.en"), "target": str(toy_files / "train.de")}
    stages = [{"weights": {"one": 0.5, "other": 0.5}, "epochs": 4, "of": "one"}, {"weights": {"other": 1.0}}]
    corpora = {"one": {**files, "tag": "<one>"}, "other": files}
    mixed = {"source": None, "target": None, "corpora": json.dumps(corpora), "stages": json.dumps(stages)}

    def start(output, steps, log):
        options = {**OPTIONS, **mixed, "recipe.max_steps": steps}
        return subprocess.Popen([*command, *arguments(output, **options)], stdout=log, stderr=log)

    return start


def wait_for(process, condition, seconds: float = float("inf")) -> None:
    """Returns when the condition is true, the process has ended or the time is over."""
    end = time.monotonic() + seconds
    while process.poll() is None and not condition() and time.monotonic() < end:
        time.sleep(0.001)


def kill(process, moment: str, files: CheckpointFiles, limit: int, draw: random.Random) -> None:
    """Kills the process at its start, between checkpoints or while it writes a checkpoint.

    On a fast machine, a random wait could last to the end of the run: it ends when a checkpoint reaches step `limit`.
    """
    before = set(files.steps())

    def is_far() -> bool:
        return max(files.steps(), default=0) >= limit

    if moment == "start":
        wait_for(process, is_far, draw.uniform(0.0, 10.0))
    else:
        wait_for(process, lambda: set(files.steps()) - before)
        wait_for(process, is_far, draw.uniform(0.0, 2.0))
    if moment == "checkpoint":
        wait_for(process, lambda: any(files.folder.glob(".tmp-*")))
        time.sleep(draw.uniform(0.0, 0.1))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"


def final_state(path, steps):
    """The model's weights, and all variables and the random state of the last checkpoint."""
    last = load_model(path / "checkpoints" / f"step-{steps:08d}.keras")
    variables = [*load_model(path / "model.keras").weights, *last.weights, *last.optimizer.variables]
    return [variable.numpy() for variable in variables], CheckpointFiles(path / "checkpoints").read(steps).random


@pytest.mark.nightly
@pytest.mark.parametrize(("kills", "steps"), [(5, 200), (20, 600)])
def test_a_killed_run_ends_as_an_unbroken_one(kills, steps, start, tmp_path):
    draw = random.Random(3)
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    with open(tmp_path / "log", "wb") as log:
        assert start(unbroken, steps, log).wait() == 0
        files = CheckpointFiles(killed / "checkpoints")
        moments = draw.sample(MOMENTS * (kills // len(MOMENTS)), kills)
        for number, moment in enumerate(moments, start=1):
            kill(start(killed, steps, log), moment, files, steps * number // (kills + 1), draw)
            print(moment, files.steps(), flush=True)
        assert start(killed, steps, log).wait() == 0
    (ours, our_random), (theirs, their_random) = final_state(killed, steps), final_state(unbroken, steps)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert our_random == their_random
    assert not list(killed.rglob(".tmp-*"))
