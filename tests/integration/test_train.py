import importlib.util
import json
import shutil

import keras
import numpy as np
import pytest
import yaml

from keras_transformer.cli import main
from keras_transformer.config import TransformerConfig
from keras_transformer.saving import load_model
from keras_transformer.storage.model_directory import FORMAT_VERSION, ModelDirectory


def record(path):
    return yaml.safe_load((path / "config.yaml").read_text())


def validations_of(path):
    return json.loads((path / "checkpoints" / "validations.json").read_text())


def best_step(path):
    return min(validations_of(path), key=lambda validation: validation["loss"])["step"]


def test_the_directory_holds_what_is_promised(model_directory):
    names = {path.name for path in model_directory.iterdir()}
    assert names == {"config.yaml", "model.keras", "tokenizer.model", "checkpoints", "logs"}
    checkpoints = {path.name for path in (model_directory / "checkpoints").iterdir()}
    best = best_step(model_directory)
    assert checkpoints == {*(f"step-{step:08d}.keras" for step in (10, 12, 16, 20, 24, best)), "validations.json"}
    assert list((model_directory / "logs").rglob("events.out.tfevents.*"))
    has_curve = (model_directory / "logs" / "training_curve.png").exists()
    assert has_curve == (importlib.util.find_spec("matplotlib") is not None)


def test_the_record_has_the_options_as_used(model_directory):
    found = record(model_directory)
    assert (found["format"], found["finished"]) == (FORMAT_VERSION, True)
    assert found["recipe"]["max_steps"] == 24 and found["model"]["d_model"] == 16
    built = TransformerConfig(**found["model_config"])
    assert (built.vocab_size, built.num_layers, built.d_ff, built.share_embeddings) == (300, 1, 32, True)
    assert load_model(model_directory / "model.keras").config == built


def test_the_model_is_float32_and_has_no_optimizer(model_directory):
    model = keras.saving.load_model(model_directory / "model.keras")
    assert not model.compiled
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert model.dtype_policy.name == "float32"


def test_every_step_was_done_and_validated(model_directory):
    validations = validations_of(model_directory)
    assert [entry["step"] for entry in validations] == [10, 20, 24]
    assert validations[-1]["loss"] < validations[0]["loss"] - 0.05
    assert int(load_model(model_directory / "checkpoints" / "step-00000024.keras").optimizer.iterations.numpy()) == 24


@pytest.mark.slow
def test_the_model_has_the_best_weights(model_directory):
    model = load_model(model_directory / "model.keras")
    best = load_model(model_directory / "checkpoints" / f"step-{best_step(model_directory):08d}.keras")
    for ours, theirs in zip(model.get_weights(), best.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.nightly
def test_fine_tuning_without_progress_stops_in_mixed_precision(model_directory, arguments, tmp_path, capsys):
    """The run starts with the weights and tokenizer of `init_from`, and patience ends it. It prints to stderr only.

    The model of `init_from` is compiled with a loss that only its author has.
    """
    model_directory = shutil.copytree(model_directory, tmp_path / "first")
    model = load_model(model_directory / "model.keras")

    def loss(labels, logits):
        return keras.ops.sum(logits)

    model.compile(loss=loss)
    model.save(model_directory / "model.keras")
    without = dict.fromkeys(["model.num_layers", "model.d_model", "model.num_heads", "model.d_ff", "model.use_bias"])
    recipe = {"precision": "mixed_bfloat16", "peak_learning_rate": 1e-9, "validate_every": 1, "patience": 2}
    changes = {**without, "tokenizer.vocab_size": None, **{f"recipe.{name}": value for name, value in recipe.items()}}
    path = tmp_path / "tuned"
    assert main(arguments(path, init_from=model_directory, **{"recipe.weights": "last"}, **changes)) == 0
    assert capsys.readouterr().out == ""

    tuned, first = (load_model(folder / "model.keras", compile=False) for folder in (path, model_directory))
    for ours, theirs in zip(tuned.get_weights(), first.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)
    assert (path / "tokenizer.model").read_bytes() == (model_directory / "tokenizer.model").read_bytes()
    assert record(path)["model_config"] == record(model_directory)["model_config"]
    assert [entry["step"] for entry in validations_of(path)] == [1, 2, 3]
    last = load_model(path / "checkpoints" / "step-00000003.keras")
    assert (last.dtype_policy.name, tuned.dtype_policy.name) == ("mixed_bfloat16", "float32")


@pytest.mark.nightly
def test_separate_vocabularies_and_learned_positions_train(arguments, tmp_path):
    changes = {"tokenizer.vocab_size": 280, "tokenizer.shared": "false", "recipe.max_steps": 2}
    assert main([*arguments(tmp_path, **changes), "--model.positions=learned", "--model.max_length=40"]) == 0
    files = ModelDirectory(tmp_path).tokenizer_files
    assert [file.name for file in files] == ["source_tokenizer.model", "target_tokenizer.model"]
    assert files[0].read_bytes() != files[1].read_bytes()
    config = load_model(tmp_path / "model.keras").config
    built = {"positions": "learned", "max_length": 40, "share_embeddings": False}
    assert {name: getattr(config, name) for name in built} == built
    assert (config.source_vocab_size, config.vocab_size) == (280, 280)
    assert main(["export", str(tmp_path), "--extra_length=5"]) == 0
