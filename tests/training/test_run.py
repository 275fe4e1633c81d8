"""What a run sets for its process."""

import contextlib
import types

import pytest

from keras_transformer.layers import attention_implementation, set_attention_implementation
from keras_transformer.training import run
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.given import Given
from keras_transformer.training.recipe_config import RecipeConfig


class Failure(Exception):
    """An error of `fit`."""


def test_the_attention_of_a_run_is_that_of_its_recipe(monkeypatch, tmp_path):
    found = []

    def fit(*arguments):
        found.append(attention_implementation())
        raise Failure

    devices = types.SimpleNamespace(
        is_chief=False,
        check_recipe=lambda recipe: None,
        detect_worker_failure=contextlib.nullcontext,
        any_worker=lambda flag: flag,
    )
    monkeypatch.setattr(run, "make_devices", lambda names: devices)
    monkeypatch.setattr(run, "_join_run", lambda *arguments: None)
    monkeypatch.setattr(run, "fit", fit)
    set_attention_implementation("auto")
    with pytest.raises(Failure):
        run.run(TrainConfig(output=str(tmp_path / "run"), recipe=RecipeConfig(attention="plain")), Given())
    assert found == ["plain"] and attention_implementation() == "auto"
