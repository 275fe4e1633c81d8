"""Whether a run may resume."""

import json
from types import SimpleNamespace

import pytest

from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.recipe_config import RecipeConfig
from keras_transformer.training.resume import check_resumable


@pytest.fixture
def directory(tmp_path):
    return ModelDirectory(tmp_path / "run")


@pytest.fixture
def config(directory):
    def config(reverse=False, **recipe):
        return TrainConfig(output=str(directory.path), reverse=reverse, recipe=RecipeConfig(**recipe))

    return config


def test_a_new_directory_is_not_resumed(directory, config):
    assert not check_resumable(config(), directory)
    directory.path.mkdir()
    assert not check_resumable(config(), directory)
    with directory.claimed():  # Only the mark is there.
        assert not check_resumable(config(), directory)


def test_an_unfinished_run_of_the_same_configuration_is_resumed(directory, config):
    directory.write_record(config(seed=3).record(), finished=False)
    assert check_resumable(config(seed=3), directory)
    assert not check_resumable(config(seed=3), directory, overwrite=True)


def test_an_unfinished_run_of_another_configuration_names_what_differs(directory, config):
    directory.write_record(config(seed=1, epochs=3).record(), finished=False)
    other = config(seed=2, epochs=3, reverse=True)
    with pytest.raises(ModelDirectoryError) as caught:
        check_resumable(other, directory)
    assert str(caught.value) == (
        f"{directory.path} contains an unfinished run with another configuration: "
        "reverse is False, requested True; recipe.seed is 1, requested 2. "
        "To resume it, give these options as they were. To start over, use --overwrite. A resumed run may change only: "
        "recipe.epochs, recipe.max_steps, recipe.max_time, recipe.patience, recipe.keep_checkpoints, "
        "recipe.checkpoint_every, recipe.remat, recipe.callbacks"
    )
    assert not check_resumable(other, directory, overwrite=True)


def test_options_that_a_resumed_run_may_change(directory, config):
    directory.write_record(config(epochs=3).record(), finished=False)
    assert check_resumable(config(epochs=5, patience=2, remat=True), directory)
    directory.write_record(config(epochs=3, schedule="cosine").record(), finished=False)
    assert check_resumable(config(epochs=3, schedule="cosine", patience=2), directory)
    with pytest.raises(ModelDirectoryError, match=r"recipe.epochs is 3, requested 5\. .*only: recipe.max_time"):
        check_resumable(config(epochs=5, schedule="cosine"), directory)


def test_a_finished_run_resumes_with_other_changeable_options_only(directory, config):
    directory.write_record(config(epochs=3).record(), finished=True)
    assert check_resumable(config(epochs=5), directory)
    message = "finished model. .*--overwrite.*--init_from .*run .*--output.*recipe.epochs.*"
    for refused, more in (
        (config(epochs=3), "checkpoint_every, recipe.remat, recipe.callbacks$"),
        (config(epochs=5, seed=2), "Other differences: recipe.seed is 1, requested 2$"),
    ):
        with pytest.raises(ModelDirectoryError, match=message + more):
            check_resumable(refused, directory)
        assert not check_resumable(refused, directory, overwrite=True)


def test_an_option_that_a_record_lacks_has_its_default(directory, config):
    record = config().record()
    del record["reverse"], record["recipe"]["r_drop"]
    directory.write_record(record, finished=False)
    assert check_resumable(config(), directory)
    with pytest.raises(
        ModelDirectoryError, match="reverse is False, requested True; recipe.r_drop is 0.0, requested 5"
    ):
        check_resumable(config(reverse=True, r_drop=5), directory)


def test_a_run_of_format_1_is_resumed_under_todays_names(directory, config):
    record = config().record()
    record["tokens"] = record.pop("prepared")
    record["recipe"]["keep"] = record["recipe"].pop("keep_checkpoints")
    directory.path.mkdir()
    directory.record_file.write_text(json.dumps({"format": 1, "finished": False, **record}))  # JSON is YAML.
    assert check_resumable(config(), directory)
    with pytest.raises(ModelDirectoryError, match=r"recipe.seed is 1, requested 2\. To resume it"):
        check_resumable(config(seed=2), directory)


def test_the_data_of_a_resumed_run_must_be_the_same(directory, config):
    plan = SimpleNamespace(data_fingerprint={"tokens_sha256": "a", "batches": []}, total=10)
    directory.write_record({**config().record(), **plan.data_fingerprint}, finished=False)
    assert check_resumable(config(), directory, plan=plan)
    plan.data_fingerprint["tokens_sha256"] = "b"
    with pytest.raises(ModelDirectoryError, match="started with other tokens or batches"):
        check_resumable(config(), directory, plan=plan)
    directory.write_record(config(epochs=3).record(), finished=True)
    with pytest.raises(ModelDirectoryError, match="its record lacks the training data"):
        check_resumable(config(epochs=5), directory, plan=plan)


def test_another_model_loss_or_metric_is_named(directory, config):
    policy = {"class_name": "DTypePolicy", "config": {"name": "float32"}}
    model = {"class_name": "Transformer", "name": "transformer", "dtype": policy, "config": {"num_layers": 1}}
    given = {"model": model, "loss": "mse"}
    directory.write_record({**config().record(), "given": given}, finished=False)
    assert check_resumable(config(), directory)  # The arguments are not known yet.
    assert check_resumable(config(), directory, given={**given, "model": {**model, "name": "transformer_1"}})
    half = {**model, "dtype": {**policy, "config": {"name": "mixed_float16"}}, "config": {"num_layers": 2}}
    for other, message in (
        ({"loss": "mse"}, r"model is \{.*\}, given None\. To resume it, give the model, loss and metrics that it was"),
        ({**given, "loss": "mae", "metrics": ["ce"]}, r"loss is 'mse', given 'mae'; metrics is None, given \['ce'\]\."),
        ({**given, "model": half}, r"dtype\.config\.name is 'float32', .*; model\.config\.num_layers is 1, given 2\."),
    ):
        with pytest.raises(ModelDirectoryError, match=f"other arguments of `train`: .*{message}"):
            check_resumable(config(), directory, given=other)
    directory.write_record(config().record(), finished=False)
    with pytest.raises(ModelDirectoryError, match="loss is None, given 'mse'"):
        check_resumable(config(), directory, given={"loss": "mse"})
    assert check_resumable(config(), directory, given={})
