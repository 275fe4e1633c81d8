"""The public names, against a golden file: a change of it is a change for users, and belongs in the changelog."""

import ast
import dataclasses
import importlib
import inspect
import pathlib
import re

import pytest

import keras_transformer

GOLDEN = pathlib.Path(__file__).parents[1] / "public_names.txt"
ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
#: Class -> the members that its API page shows, if not all.
MEMBERS = dict(
    re.findall(
        r"^::: (\S+)\n    options:\n      members: \[(.*)\]",
        "".join(page.read_text() for page in ROOT.glob("docs/api/*.md")),
        re.MULTILINE,
    )
)


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
        "apps.serve",
        "cli",
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


def public_objects():
    for name in public_names():
        module, _, attribute = name.rpartition(".")
        yield getattr(importlib.import_module(module), attribute)


def functions_of(value):
    """A function itself; of a class, the methods and properties of its API page; of a dataclass, its constructor."""
    if not inspect.isclass(value):
        return [value] if inspect.isfunction(value) else []
    shown = MEMBERS.get(f"{value.__module__}.{value.__qualname__}", "").split(", ")
    names = [name for name in dir(value) if not name.startswith("_") and (shown == [""] or name in shown)]
    members = [getattr(value, name) for name in names + ["__init__"] * dataclasses.is_dataclass(value)]
    members = [member.fget if isinstance(member, property) else member for member in members]
    return [member for member in members if inspect.isfunction(member) or inspect.ismethod(member)]


def test_every_public_name_can_be_reached():
    assert None not in public_objects()


def test_what_public_functions_take_and_return_has_a_public_name():
    classes = {f"{value.__module__}.{value.__qualname__}" for value in public_objects() if inspect.isclass(value)}
    for function in (function for value in public_objects() for function in functions_of(value)):
        types = re.findall(r"keras_transformer[\w.]*\.[A-Z]\w*", str(inspect.get_annotations(function)))
        assert set(types) <= classes, function


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
    assert set(imported) <= set(public_names())
