import json
import os
import pathlib
import re
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.cli import main
from keras_transformer.saving import load_model
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.training.checkpoints import CheckpointFiles
from keras_transformer.training.config import RecipeConfig
from keras_transformer.training.finish import finish
from keras_transformer.training.progress import Progress
from keras_transformer.translate.finished_model import load_finished


@pytest.fixture
def killed(runs, tmp_path):
    """A copy of the run that was killed after step 14. Its last checkpoint has step 12."""
    shutil.copytree(runs / "killed", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def steps(monkeypatch):
    """The steps of the training at each call of its callbacks, recorded during the test."""
    steps = []

    class Spy(Progress):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            steps.append(self.bar.n)

    monkeypatch.setattr("keras_transformer.training.fit.Progress", Spy)
    return steps


def contents(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def assert_equal_ends(path, other):
    """Model, last checkpoint (with optimizer and seed generators) and validations are bit-identical."""
    files = (folder / "checkpoints" / "validations.json" for folder in (path, other))
    ours, theirs = ([(entry["step"], entry["loss"]) for entry in json.loads(file.read_text())] for file in files)
    assert ours == theirs
    models = [load_model(folder / "model.keras") for folder in (path, other)]
    last = [load_model(folder / "checkpoints" / "step-00000024.keras") for folder in (path, other)]
    for one, two in (models, last):
        for a, b in zip(one.weights, two.weights, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=a.path)
    for a, b in zip(*(model.optimizer.variables for model in last), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=a.path)
    states = [CheckpointFiles(folder / "checkpoints").read(24) for folder in (path, other)]
    assert states[0].random == states[1].random and states[0].random[0][1] == 24


@pytest.mark.slow
def test_a_killed_run_ends_as_an_unbroken_one(killed, model_directory, arguments, steps):
    assert not (killed / "model.keras").exists()
    assert main(arguments(killed)) == 0
    assert steps == list(range(13, 25))
    assert_equal_ends(killed, model_directory)


def test_another_configuration_is_refused(killed, arguments, capsys):
    before = contents(killed)
    assert main(arguments(killed, **{"recipe.seed": 2, "max_length": 39})) == 2
    message = capsys.readouterr().err
    assert re.search(f"{killed} .*unfinished", message)
    assert re.search(r"\bmax_length\b.*40.*39", message) and re.search(r"recipe.seed\b.*1.*2", message)
    assert "d_model" not in message and "give these options as they were. To start over, use --overwrite" in message
    assert contents(killed) == before


def test_a_finished_run_is_refused(model_directory, arguments, capsys):
    before = contents(model_directory)
    assert main(arguments(model_directory)) == 2
    assert re.search(f"{model_directory} .*finished.*--overwrite", capsys.readouterr().err)
    assert contents(model_directory) == before


@pytest.mark.parametrize("folder", ["toy", "killed"])
def test_faulty_data_leave_what_is_to_be_overwritten(runs, tmp_path, arguments, folder, capsys):
    shutil.copytree(runs / folder, tmp_path / "run")
    before = contents(tmp_path / "run")
    options = arguments(tmp_path / "run", **{"tokenizer.vocab_size": 8000})
    assert main([*options, "--overwrite"]) == 2
    assert re.search("`tokenizer.vocab_size` .*Received: .*8000", capsys.readouterr().err)
    assert contents(tmp_path / "run") == before


def cut(file):
    file.write_bytes(file.read_bytes()[:1000])


@pytest.mark.nightly
def test_a_newest_checkpoint_that_is_broken_is_passed_by(killed, model_directory, arguments, capsys):
    newest = killed / "checkpoints" / "step-00000012.keras"
    cut(newest)
    assert main(arguments(killed)) == 0
    message = capsys.readouterr().err
    assert str(newest) in message and "step 10" in message
    assert_equal_ends(killed, model_directory)


def test_a_run_without_valid_checkpoints_is_refused(killed, arguments, capsys):
    for file in (killed / "checkpoints").glob("*.keras"):
        cut(file)
    before = contents(killed)
    assert main(arguments(killed)) == 2
    message = capsys.readouterr().err
    assert "train: error: " in message and "--overwrite" in message
    assert contents(killed) == before


@pytest.mark.parametrize(
    ("weights", "broken", "reported", "made_of"),
    [
        ("best", {20}, set(), [24]),
        ("best", {24}, {24}, [20]),
        ("best", {10, 20, 24}, {10, 20, 24}, [16]),
        ("average", {10, 24}, {24}, [12, 16, 20]),
    ],
)
def test_a_broken_checkpoint_is_left_out_of_the_finished_model(
    model_directory, tmp_path, monkeypatch, capsys, weights, broken, reported, made_of
):
    """The training ends right after it has resumed from step 16."""
    shutil.copytree(model_directory, tmp_path / "run")
    directory, files = ModelDirectory(tmp_path / "run"), CheckpointFiles(tmp_path / "run" / "checkpoints")
    plan = SimpleNamespace(
        model_config=TransformerConfig(**directory.record()["model_config"]),
        tokenizers=load_tokenizers(directory)[:1],
    )
    state = files.read(24)
    assert state.best_steps() == [24, 20, 10]
    state.step = 16
    for step in broken:
        cut(files.path(step))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = SimpleNamespace(recipe=RecipeConfig(weights=weights, keep_checkpoints=4), record=dict, prepared="tokens")
    finish(config, directory, plan, state)
    said = capsys.readouterr().err
    assert {step for step in broken if f"{files.path(step)} (" in said} == reported
    assert re.search(f"model .*{directory.path}\n.*matplotlib", said)
    assert directory.require_finished()["weights_of_steps"] == made_of


def killer(step, number=signal.SIGTERM):
    """A progress bar that sends a signal to its process in this step."""

    class Killer(Progress):
        def on_train_batch_begin(self, batch, logs=None):
            if self.bar.n == step - 1:
                os.kill(os.getpid(), number)

    return Killer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "step"),
    [
        (signal.SIGINT, 130, 6),
        pytest.param(signal.SIGINT, 130, 10, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, 143, 6, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, 143, 10, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_saves_and_the_same_command_resumes(
    model_directory, arguments, tmp_path, monkeypatch, capsys, number, status, step
):
    """Step 10 is followed by a validation, which is completed and saved first."""
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.fit.Progress", killer(step, number))
        assert main(arguments(tmp_path / "run")) == status
    saved = tmp_path / "run" / "checkpoints" / f"step-{step:08d}.keras"
    message = capsys.readouterr().err
    assert number.name in message and str(saved) in message and "resume" in message
    assert "Traceback" not in message and not (tmp_path / "run" / "model.keras").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if number == signal.SIGTERM:
        assert main(arguments(tmp_path / "run")) == 0
        assert_equal_ends(tmp_path / "run", model_directory)


@pytest.mark.nightly
def test_a_stopped_run_of_buckets_ends_as_an_unbroken_one(arguments, tmp_path, monkeypatch):
    whole, stopped = (arguments(tmp_path / name, num_buckets=2) for name in ("whole", "stopped"))
    assert main(whole) == 0
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.fit.Progress", killer(step=15))
        assert main(stopped) == 143
    assert main(stopped) == 0
    assert_equal_ends(tmp_path / "stopped", tmp_path / "whole")
    assert ModelDirectory(tmp_path / "whole").record()["num_buckets"] == 2


@pytest.mark.nightly
def test_a_run_repeats_bit_for_bit_and_traces_its_step_once(model_directory, arguments, tmp_path, monkeypatch):
    compute_loss, traces = Transformer.compute_loss, []

    def spy(self, *args, training=True, **kwargs):
        traces.append(training)
        return compute_loss(self, *args, training=training, **kwargs)

    monkeypatch.setattr(Transformer, "compute_loss", spy)
    assert main(arguments(tmp_path / "run")) == 0
    assert_equal_ends(tmp_path / "run", model_directory)
    assert traces.count(True) == 1


def test_too_little_memory_for_a_new_model_leaves_the_old_one(
    model_directory, arguments, tmp_path, monkeypatch, capsys
):
    """`train --overwrite` can be resumed then, and the old model translates until it is replaced."""
    run, tokenizers = tmp_path / "run", []
    shutil.copytree(model_directory, run)
    before = {name: (run / name).read_bytes() for name in ("model.keras", "tokenizer.model")}

    def fit(config, directory, plan, devices, given):
        tokenizers.append(plan.tokenizers[0].model)
        raise MemoryError

    monkeypatch.setattr("keras_transformer.training.run.fit", fit)
    command = arguments(run, **{"tokenizer.vocab_size": 290})
    assert main(command) == 2 and "use --overwrite" in capsys.readouterr().err
    for more in (["--overwrite"], []):
        assert main([*command, *more]) == 2
        assert "Not enough memory: lower `--tokens_per_device`" in capsys.readouterr().err
        assert {name: (run / name).read_bytes() for name in before} == before
        assert load_finished(ModelDirectory(run))[0].config.vocab_size == 300
    assert tokenizers[0] == tokenizers[1] != before["tokenizer.model"]
    assert main(["average", str(run)]) == 2 and "not finished" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_killed_run_that_overwrites_ends_as_an_unbroken_one(model_directory, arguments, tmp_path, monkeypatch):
    directory = ModelDirectory(tmp_path / "run")
    directory.write_record({"dataset": "old"}, finished=True)
    directory.model_file.write_bytes(b"old")
    directory.write_tokenizers((b"old",))
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.fit.Progress", killer(step=14))
        assert main([*arguments(directory.path), "--overwrite"]) == 143
    assert directory.model_file.read_bytes() == directory.tokenizer_files[0].read_bytes() == b"old"
    assert directory.require_finished()["dataset"] == "old"
    shutil.rmtree(directory.tokens)  # The tokenizer is then trained again.
    assert main(arguments(directory.path)) == 0
    assert_equal_ends(directory.path, model_directory)
    assert directory.tokenizer_models() == ModelDirectory(model_directory).tokenizer_models()


@pytest.mark.nightly
def test_overwriting_starts_over_where_checkpoints_are_on_another_disk(model_directory, tmp_path, arguments):
    """The targets of links to checkpoints, exports and tokens are neither used nor deleted."""
    run, disk = tmp_path / "run", tmp_path / "disk"
    shutil.copytree(model_directory, run)
    disk.mkdir()
    (run / "export").mkdir()
    (run / "tokens").mkdir()
    for name in ("checkpoints/mine.pt", "tokens/tokenizer.model"):
        (run / name).touch()
    for name in ("checkpoints", "export", "tokens"):
        (run / name).rename(disk / name)
        (run / name).symlink_to(disk / name)
    before = contents(disk)
    options = {"recipe.max_steps": 2, "recipe.seed": 2}
    assert main([*arguments(run, **options), "--overwrite"]) == 0
    assert CheckpointFiles(run / "checkpoints").steps() == [2] and not (run / "export").exists()
    history = json.loads((run / "checkpoints" / "validations.json").read_text())
    assert [entry["step"] for entry in history] == [2]
    records = [ModelDirectory(path).record() for path in (model_directory, run)]
    assert records[0]["run"] != records[1]["run"]
    assert contents(disk) == before


def test_a_run_starts_only_if_old_checkpoints_can_be_deleted(killed, arguments, monkeypatch, capsys):
    first, unlink = killed / "checkpoints" / "step-00000010.keras", pathlib.Path.unlink

    def refuse(path, **kwargs):
        if path == first:
            raise PermissionError(13, "Permission denied")
        unlink(path, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", refuse)
        assert main([*arguments(killed, **{"recipe.seed": 2}), "--overwrite"]) == 2
    assert f"{first}: permission denied" in capsys.readouterr().err
    assert not ModelDirectory(killed).is_started()


def test_a_checkpoint_of_another_run_is_refused(killed, arguments, capsys):
    directory = ModelDirectory(killed)
    directory.write_record({**directory.record(), "run": "another"}, finished=False)
    assert main(arguments(killed)) == 2
    assert "another run" in capsys.readouterr().err


def test_foreign_files_are_neither_taken_nor_deleted(tmp_path, arguments, capsys):
    for name in ("checkpoints/pytorch_epoch9.pt", "logs/experiment.log", "tokens/corpus.bin", "tokenizer.model"):
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text("precious")
    before = contents(tmp_path / "run")
    for more in ([], ["--overwrite"]):
        assert main([*arguments(tmp_path / "run"), *more]) == 2
        assert re.search(f"{tmp_path / 'run'} is not empty .*no config.yaml", capsys.readouterr().err)
    assert contents(tmp_path / "run") == before


@pytest.mark.nightly
def test_a_run_that_is_killed_at_its_beginning_may_be_run_with_other_options(tmp_path, arguments, monkeypatch):
    run = tmp_path / "run"

    def kill(directory, *_):
        assert (run / "config.yaml").exists()
        shutil.copytree(run, tmp_path / "killed")
        raise ValueError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.data.run_tokens.write_tokens", kill)
        assert main(arguments(run)) == 2
        assert not run.exists()
    run = (tmp_path / "killed").rename(run)
    assert any((run / "tokens").iterdir())
    assert main(arguments(run, **{"tokenizer.vocab_size": 290, "recipe.max_steps": 2})) == 0
    assert not list(run.rglob(".tmp-*"))


@pytest.mark.nightly
def test_a_longer_run_is_as_if_it_had_been_asked_for_at_once(
    model_directory, arguments, tmp_path, monkeypatch, capsys, steps
):
    """The run stops at step 14 of 16, resumes to step 20, finishes, and is trained further."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.fit.Progress", killer(step=14))
        assert main(arguments(run, **{"recipe.max_steps": 16})) == 143
    before = contents(run)
    assert main(arguments(run, **{"recipe.max_steps": 13})) == 2
    message = capsys.readouterr().err
    assert re.search(f"at least .*14 .*{run} .*Received: epochs=None, max_steps=13", message)
    assert contents(run) == before
    assert main(arguments(run, **{"recipe.max_steps": 20})) == 0
    assert re.search(f"step 14 .*20.*{run / 'checkpoints' / 'step-00000014.keras'}", capsys.readouterr().err)
    assert main(arguments(run, **{"recipe.keep_checkpoints": 6, "recipe.max_steps": 20})) == 2
    assert re.search(f"more than .*20 .*{run} ", capsys.readouterr().err)
    assert ModelDirectory(run).require_finished()["recipe"]["keep_checkpoints"] == 5
    assert main(arguments(run)) == 0
    assert steps == list(range(15, 25))
    assert_equal_ends(run, model_directory)
    assert ModelDirectory(run).record()["recipe"] == ModelDirectory(model_directory).record()["recipe"]


def test_a_model_that_is_trained_for_longer_can_be_used_and_not_averaged(model_directory, tmp_path, capsys):
    shutil.copytree(model_directory, tmp_path / "run")
    directory = ModelDirectory(tmp_path / "run")
    directory.write_record(directory.record(), finished=False)
    assert directory.require_finished()
    assert main(["average", str(directory.path)]) == 2
    assert re.search(f"{directory.path} .*not finished", capsys.readouterr().err)


def test_a_finished_run_without_checkpoints_is_not_continued(model_directory, arguments, tmp_path, capsys):
    shutil.copytree(model_directory, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    before = contents(tmp_path / "run")
    assert main(arguments(tmp_path / "run", **{"recipe.max_steps": 30})) == 2
    message = capsys.readouterr().err
    assert "no checkpoints" in message
    assert "--overwrite" in message and "--init_from" in message
    assert contents(tmp_path / "run") == before


def test_a_cosine_schedule_fixes_the_number_of_steps(killed, arguments, capsys):
    """The schedule depends on the number of steps, which therefore cannot change."""
    directory = ModelDirectory(killed)
    record = directory.record()
    record["recipe"]["schedule"] = "cosine"
    directory.write_record(record, finished=False)
    assert main(arguments(killed, **{"recipe.schedule": "cosine", "recipe.max_steps": 30})) == 2
    assert re.search(r"recipe.max_steps\b.*24.*30", capsys.readouterr().err)


@pytest.mark.nightly
def test_several_updates_in_one_go(model_directory, arguments, tmp_path, monkeypatch, steps):
    """A signal during an execution stops the run after its last step; the same command resumes.

    Checkpoints are written at multiples of the execution: steps 4, 8 and so on.
    """
    command = arguments(tmp_path / "run", **{"recipe.steps_per_execution": 2, "recipe.checkpoint_every": 3})
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.fit.Progress", killer(5))
        assert main(command) == 143
    assert (tmp_path / "run" / "checkpoints" / "step-00000006.keras").exists()
    assert main(command) == 0
    assert steps == list(range(8, 25, 2))
    ours, theirs = (CheckpointFiles(path / "checkpoints").steps() for path in (tmp_path / "run", model_directory))
    assert ours == theirs == [10, 12, 16, 20, 24]
    assert_equal_ends(tmp_path / "run", model_directory)
