"""Every example in a docstring runs and prints what it says; every public name has its docstring."""

import doctest
import importlib
import inspect
import pkgutil

import keras
import numpy as np
import pytest

import keras_transformer
import keras_transformer.export
import keras_transformer.training
from keras_transformer import layers

PACKAGES = (keras_transformer, keras_transformer.training, keras_transformer.export)
MODULES = sorted(
    {
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith(("backends.jax", "backends.tensorflow", "backends.workers"))
    }
)
#: Modules whose examples search for seconds.
SLOW = ("models.transformer", "models.ensemble", "models.language_model", "models.generation")
PUBLIC = ("decoding", "layers", "losses", "masks", "metrics", "models", "optimizers", "plotting", "schedules")


def public_objects():
    for submodule in PUBLIC:
        module = importlib.import_module(f"keras_transformer.{submodule}")
        for name, value in inspect.getmembers(module, lambda v: inspect.isclass(v) or inspect.isfunction(v)):
            if not name.startswith("_") and value.__module__.startswith("keras_transformer"):
                yield f"{submodule}.{name}", value


OBJECTS = dict(public_objects())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * name.endswith(SLOW)) for name in MODULES]
)
def test_examples_print_what_they_say(name, tensorflow):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    printed = []
    for test in doctest.DocTestFinder().find(module, extraglobs={"np": np, "keras": keras}):
        runner.run(test, out=printed.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)


def test_the_examples_are_found():
    finder = doctest.DocTestFinder()
    counts = {name: sum(len(test.examples) for test in finder.find(importlib.import_module(name))) for name in MODULES}
    assert counts["keras_transformer.layers.attention"] >= 3
    assert sum(counts.values()) >= 40


@pytest.mark.parametrize("name", OBJECTS)
def test_public_names_say_what_they_take_and_give(name):
    value = OBJECTS[name]
    docstring = inspect.getdoc(value) or ""
    assert docstring and docstring.splitlines()[0].endswith((".", ":"))
    is_layer = inspect.isclass(value) and issubclass(value, keras.layers.Layer)
    sections = ["Args:", "Call arguments:", "Returns:", "Example:"] if is_layer else []
    sections = ["Args:", "Raises:", "Example:"] if is_layer and issubclass(value, keras.Model) else sections
    # An attention calls the methods of a position scheme.
    sections = ["Args:", "Example:"] if is_layer and issubclass(value, layers.PositionScheme) else sections
    assert [section for section in sections if section not in docstring] == []
