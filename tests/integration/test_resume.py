import json
import shutil

import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.saving import load_model
from keras_transformer.training.callbacks import Progress


@pytest.fixture
def killed(runs, tmp_path):
    """A copy of what lay there when the run was killed after step 14: its last checkpoint is that of step 12."""
    shutil.copytree(runs / "killed", tmp_path / "run")
    return tmp_path / "run"


def contents(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_killed_run_ends_as_an_unbroken_one(killed, model_directory, arguments, monkeypatch):
    steps = []

    class Spy(Progress):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            steps.append(self.bar.n)

    monkeypatch.setattr("keras_transformer.training.train.Progress", Spy)
    assert not (killed / "model.keras").exists()
    assert main(arguments(killed)) == 0
    assert steps == list(range(13, 25))
    assert int(load_model(killed / "checkpoints" / "last.keras").optimizer.iterations.numpy()) == 24
    files = (path / "checkpoints" / "validations.json" for path in (killed, model_directory))
    resumed, unbroken = ([(entry["step"], entry["loss"]) for entry in json.loads(file.read_text())] for file in files)
    np.testing.assert_allclose(resumed, unbroken, rtol=1e-5)
    models = (load_model(path / "model.keras") for path in (killed, model_directory))
    for ours, theirs in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_another_configuration_is_refused(killed, arguments, capsys):
    before = contents(killed)
    assert main(arguments(killed, **{"recipe.seed": 2, "max_length": 39})) == 2
    message = capsys.readouterr().err
    assert "holds an unfinished run of another configuration, differing in: " in message
    assert "max_length: 40 there, 39 asked for" in message and "recipe.seed: 1 there, 2 asked for" in message
    assert "d_model" not in message
    assert contents(killed) == before


def test_a_finished_run_is_refused(model_directory, arguments, capsys):
    before = contents(model_directory)
    assert main(arguments(model_directory)) == 2
    assert f"{model_directory} holds a finished model; --overwrite replaces it" in capsys.readouterr().err
    assert contents(model_directory) == before


@pytest.mark.parametrize("folder", ["toy", "killed"])
def test_faulty_data_leave_what_is_to_be_overwritten(runs, tmp_path, arguments, folder, capsys):
    shutil.copytree(runs / folder, tmp_path / "run")
    before = contents(tmp_path / "run")
    options = arguments(tmp_path / "run", **{"tokenizer.vocab_size": 8000})
    assert main([*options, "--overwrite"]) == 2
    assert "`tokenizer.vocab_size` must be at most" in capsys.readouterr().err
    assert contents(tmp_path / "run") == before


def test_a_checkpoint_that_is_broken_is_named(killed, arguments, capsys):
    last = killed / "checkpoints" / "last.keras"
    last.write_bytes(last.read_bytes()[:1000])
    assert main(arguments(killed)) == 2
    assert f"train: error: Not a whole checkpoint: {last}" in capsys.readouterr().err


@pytest.mark.slow
def test_overwriting_begins_anew(model_directory, tmp_path, arguments):
    shutil.copytree(model_directory, tmp_path / "run")
    (tmp_path / "run" / "export").mkdir()
    assert main([*arguments(tmp_path / "run", **{"recipe.max_steps": 2}), "--overwrite"]) == 0
    assert not (tmp_path / "run" / "export").exists()
    history = json.loads((tmp_path / "run" / "checkpoints" / "validations.json").read_text())
    assert [entry["step"] for entry in history] == [2]
