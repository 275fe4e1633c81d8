"""Runs with the options of `recipe`, from the command line to the finished model."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import yaml

from keras_transformer.cli import main
from keras_transformer.saving import load_model
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.averaging import average, copy_moving_average
from keras_transformer.training.checkpoints import CheckpointFiles
from keras_transformer.training.progress import Progress

BRIEF = {"recipe.max_steps": 8, "recipe.validate_every": 4, "recipe.checkpoint_every": 2, "model.dropout": 0.0}


def weights_at(path, *steps):
    """The mean weights of these checkpoints."""
    files = CheckpointFiles(path / "checkpoints")
    weights = [load_model(files.path(step), compile=False).get_weights() for step in steps]
    return [np.mean(group, axis=0) for group in zip(*weights, strict=True)]


def assert_has_weights(path, expected, **tolerance):
    for ours, theirs in zip(load_model(path / "model.keras").get_weights(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, **(tolerance or {"atol": 1e-7}))


def validations_of(path):
    return json.loads((path / "checkpoints" / "validations.json").read_text())


@pytest.mark.nightly
def test_the_average_of_checkpoints_becomes_the_model(arguments, tmp_path, capsys):
    options = {
        "recipe.weights": "average",
        "recipe.keep_checkpoints": 3,
        "recipe.schedule": "cosine",
        "recipe.warmup_steps": 2,
    }
    assert main(arguments(tmp_path / "run", **BRIEF, **options)) == 0
    assert_has_weights(tmp_path / "run", weights_at(tmp_path / "run", 4, 6, 8))

    assert main(["average", str(tmp_path / "run"), "--last=2"]) == 0
    assert "steps 6, 8" in capsys.readouterr().err
    assert_has_weights(tmp_path / "run", weights_at(tmp_path / "run", 6, 8))
    record = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert record["weights_of_steps"] == [6, 8] and record["finished"]

    for last in (0, 4):
        assert main(["average", str(tmp_path / "run"), f"--last={last}"]) == 2
        assert re.search(rf"`last` .*\[1, 3\].*Received: last={last}", capsys.readouterr().err)
    assert main(["average", str(tmp_path / "none")]) == 2
    assert re.search(f"model directory.*{tmp_path / 'none'}", capsys.readouterr().err)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "others",
    [
        pytest.param({}, marks=pytest.mark.nightly),
        pytest.param({"tokens_per_device": 100, "model.dropout": 0.1}, marks=pytest.mark.nightly),
        pytest.param({"recipe.xla": "true", "tokens_per_device": 100, "model.dropout": 0.1}, marks=pytest.mark.nightly),
        pytest.param({"recipe.precision": "mixed_float16", "tokens_per_device": 100}, marks=pytest.mark.nightly),
    ],
    ids=["float32", "micro-batches", "xla", "float16"],
)
def test_the_moving_average_survives_an_interruption(arguments, tmp_path, monkeypatch, others):
    class Killer(Progress):
        def on_train_batch_begin(self, batch, logs=None):
            if self.bar.n == 4:
                os.kill(os.getpid(), signal.SIGTERM)

    options = {**BRIEF, "recipe.moving_average": 0.8, "recipe.validate_every": 3, "recipe.weights": "last", **others}
    assert main(arguments(tmp_path / "unbroken", **options)) == 0
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.fit.Progress", Killer)
        assert main(arguments(tmp_path / "run", **options)) == 143
    assert main(arguments(tmp_path / "run", **options)) == 0
    assert_has_weights(tmp_path / "run", load_model(tmp_path / "unbroken" / "model.keras").get_weights(), rtol=0)
    last = load_model(tmp_path / "run" / "checkpoints" / "step-00000008.keras")
    raw = last.get_weights()
    copy_moving_average(last)
    assert_has_weights(tmp_path / "run", last.get_weights())
    assert max(abs(a - b).max() for a, b in zip(raw, last.get_weights(), strict=True)) > 1e-3
    with pytest.raises(ValueError, match="moving_average.*average already"):
        average(tmp_path / "run")
    # The weights during the validation.
    assert [validation["step"] for validation in validations_of(tmp_path / "run")] == [3, 6, 8]


@pytest.mark.nightly
def test_the_best_model_by_bleu_is_kept(arguments, tmp_path, monkeypatch):
    scores = iter([20.0, 30.0, 10.0])
    seen = []

    def evaluate(translator, source, target, **options):
        seen.append([len(line.split()) for line in (*source, *target)])
        assert len(translator.translate(source[:2])) == 2
        return type("Scores", (), {"bleu": next(scores)})

    monkeypatch.setattr("keras_transformer.training.validation_bleu.evaluate", evaluate)
    options = {"recipe.best_by": "bleu", "recipe.bleu_sentences": 3, "recipe.validate_every": 3}
    assert main(arguments(tmp_path / "run", **{**BRIEF, **options})) == 0
    assert [(v["step"], v["bleu"]) for v in validations_of(tmp_path / "run")] == [(3, 20.0), (6, 30.0), (8, 10.0)]
    assert all(len(lines) == 6 for lines in seen)
    assert_has_weights(tmp_path / "run", weights_at(tmp_path / "run", 6))


@pytest.mark.nightly
def test_several_passes_over_each_batch(arguments, tmp_path, capsys):
    assert main(arguments(tmp_path / "whole", **BRIEF)) == 0
    said = capsys.readouterr().err
    assert "micro-batches" not in said
    assert re.search(r"0\.\d GFLOPs .*0\.\d MFLOPs", said)
    assert main(arguments(tmp_path / "parts", **BRIEF, tokens_per_device=100)) == 0
    said = capsys.readouterr().err
    assert "4 micro-batches" in said
    assert "devices: 1 x CPU\n" in said
    ours, theirs = ([v["loss"] for v in validations_of(tmp_path / name)] for name in ("parts", "whole"))
    assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.slow
def test_time_runs_out(arguments, tmp_path):
    assert main(arguments(tmp_path / "run", **{**BRIEF, "recipe.max_time": 1e-6})) == 0
    assert [validation["step"] for validation in validations_of(tmp_path / "run")] == [1]
    assert (tmp_path / "run" / "model.keras").exists()


def test_a_cosine_needs_steps_after_its_rise(arguments, tmp_path, capsys):
    options = {**BRIEF, "recipe.schedule": "cosine", "recipe.warmup_steps": 8}
    assert main(arguments(tmp_path / "run", **options)) == 2
    assert re.search("`warmup_steps` .*8.*Received: warmup_steps=8", capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_loss_that_runs_away(arguments, tmp_path, capsys):
    options = {**BRIEF, "recipe.peak_learning_rate": 1e30, "recipe.warmup_steps": 1}
    assert main(arguments(tmp_path / "run", **options)) == 1
    message = capsys.readouterr().err
    assert "step 2, batch 2 of epoch 1" in message or "NaN or Inf" in message
    assert "no valid checkpoint" in message and "Traceback" not in message
    assert not (tmp_path / "run" / "model.keras").exists()


FULL_DISK = """
import resource, sys
from keras_transformer.cli import main
from keras_transformer.training import checkpoints
write = checkpoints.CheckpointFiles.write

def limited(self, model, state):
    if state.step > 4:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    write(self, model, state)

checkpoints.CheckpointFiles.write = limited
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.nightly
def test_a_full_disk_stops_with_a_message(arguments, tmp_path):
    """A limit on the file size simulates a full disk."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *arguments(tmp_path / "run", **BRIEF)], capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    directory = ModelDirectory(tmp_path / "run")
    files = CheckpointFiles(directory.checkpoints, run=directory.record()["run"])
    assert re.search(f"{files.path(6)}: file too large.*{files.path(4)}", done.stderr)
    assert "Traceback" not in done.stderr
    assert files.steps() == [2, 4] and files.latest_valid().step == 4
    assert not list((tmp_path / "run").rglob(".tmp-*"))
