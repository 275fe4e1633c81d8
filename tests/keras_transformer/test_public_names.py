"""The public names, against a golden file: a change of it is a change for users, and belongs in the changelog."""

import ast
import importlib
import pathlib

import pytest

import keras_transformer

GOLDEN = pathlib.Path(__file__).parents[1] / "public_names.txt"
EXAMPLES = sorted((pathlib.Path(__file__).parents[2] / "examples").glob("*.py"))
#: Imports of the quickstart that have no public name.
NOT_PUBLIC = {"cli.main", "storage.model_directory.ModelDirectory", "training.data_config.DataConfig"}
NOT_PUBLIC |= {"training.datasets.load_corpus", "translate.load.available_runtimes"}


def public_names_of(module):
    """`__all__`, or what a module without one defines itself."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def public_names():
    names = {f"keras_transformer.{name}" for name in public_names_of(keras_transformer)}
    for submodule in (
        "apps",
        "apps.distillation",
        "decoding",
        "distribution",
        "evaluation",
        "export",
        "layers",
        "losses",
        "masks",
        "metrics",
        "models",
        "optimizers",
        "plotting",
        "schedules",
        "storage",
        "text",
        "training",
        "translate",
    ):
        module = importlib.import_module(f"keras_transformer.{submodule}")
        names |= {f"{module.__name__}.{name}" for name in public_names_of(module)}
    return sorted(names)


def test_public_names_are_those_of_the_golden_file():
    assert public_names() == GOLDEN.read_text().split()


def test_every_public_name_can_be_reached():
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute) is not None


def test_dir_lists_the_public_names():
    assert set(public_names_of(keras_transformer)) <= set(dir(keras_transformer))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_import_public_names(path):
    imported = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("keras_transformer")
        for alias in node.names
    ]
    known = set(public_names()) | {f"keras_transformer.{name}" for name in NOT_PUBLIC if path.stem == "quickstart"}
    assert set(imported) <= known
