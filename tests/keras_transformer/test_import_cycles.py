"""Which modules import which: in one direction, without cycles.

Imports inside functions count, and so do names such as `"package.module:function"`, which are imported when called.
"""

import ast
import pathlib
import re

import pytest

import keras_transformer
import keras_transformer.apps
import keras_transformer.export
import keras_transformer.training

FOLDERS = {
    "keras_transformer": pathlib.Path(keras_transformer.__file__).parent,
    "keras_transformer.training": pathlib.Path(keras_transformer.training.__file__).parent,
    "keras_transformer.export": pathlib.Path(keras_transformer.export.__file__).parent,
    "keras_transformer.apps": pathlib.Path(keras_transformer.apps.__file__).parent,
}
#: The folders of the applications and their files, which the core does not know.
OUTSIDE = {"text", "storage", "translate", "evaluation", "cli", "training", "export", "apps"}
#: Folder -> the folders that its modules must not import. "" stands for the modules directly in `keras_transformer`.
FORBIDDEN = {
    "": OUTSIDE,
    "layers": OUTSIDE | {"decoding", "models"},
    "decoding": OUTSIDE | {"layers", "models"},
    "models": OUTSIDE,
    "text": OUTSIDE - {"text"} | {"layers", "models"},
    "storage": OUTSIDE - {"text", "storage"} | {"layers", "models", "decoding"},
    "translate": {"evaluation", "cli", "training", "export", "apps"},
    "evaluation": {"cli", "training", "export", "apps"},
    "training": {"cli", "export", "apps"},
    "export": {"cli", "training", "apps"},
    "apps": {"cli"},
}


#: Names of functions that are imported when they are called.
LATE = re.compile(r"[a-z_0-9.]+:\w+")
#: The only way from the core to the exports.
CLIENTS = ("saved_model", "onnx", "ctranslate2")
ALLOWED = {("keras_transformer.translate.load", f"keras_transformer.export.{name}.translator") for name in CLIENTS}


def find_modules():
    """Name -> source file of every module."""
    modules = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            modules[".".join(part for part in parts if part != "__init__")] = path
    return modules


def imports_of(source, modules):
    """The modules that a source imports, anywhere."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            named = [name for name in submodules if name in modules]
            yield from named
            if len(named) < len(submodules):
                yield node.module
        elif isinstance(node, ast.Constant) and LATE.fullmatch(str(node.value)):
            yield from {name for name in named_by(node.value) if name in modules}


def named_by(late):
    """The possible names of the module in `"package.module:function"`: some are relative to the exports."""
    module = late.partition(":")[0]
    return module, f"keras_transformer.export.{module}"


def find_cycle(graph):
    """A list of modules that import one another in a circle, or `None`."""
    finished, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :] + [name]
        if name in finished:
            return None
        path.append(name)
        for other in sorted(graph[name]):
            if cycle := visit(other):
                return cycle
        finished.add(path.pop())
        return None

    return next((cycle for name in sorted(graph) if (cycle := visit(name))), None)


def folder_of(module):
    """`"text"` of `keras_transformer.text.lines`, `""` of `keras_transformer.masks`."""
    parts = module.replace("__main__", "cli").split(".")
    return parts[1] if len(parts) > 1 and parts[1] in {*FORBIDDEN, "cli"} else ""


@pytest.fixture(scope="module")
def graph():
    """Module -> the modules that it imports."""
    modules = find_modules()
    return {name: set(imports_of(path.read_text(encoding="utf-8"), modules)) for name, path in modules.items()}


def test_there_is_no_import_cycle(graph):
    assert len(graph) > 100 and "keras_transformer.masks" in graph["keras_transformer.layers.attention"]
    assert find_cycle(graph) is None


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_folders_import_in_one_direction(graph, folder):
    edges = [(name, other) for name in graph if folder_of(name) == folder for other in graph[name]]
    assert edges
    assert [edge for edge in edges if folder_of(edge[1]) in FORBIDDEN[folder] and edge not in ALLOWED] == []


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, None),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]),
        ({"a": set(), "b": {"b"}}, ["b", "b"]),
    ],
)
def test_cycles_are_found(graph, cycle):
    assert find_cycle(graph) == cycle


def test_imports_inside_functions_count():
    source = "import a.b\ndef f():\n    from a import c, d\n    from e import x\n    late('a.g:h')"
    modules = {"a": 0, "a.b": 0, "a.c": 0, "a.g": 0, "e": 0}
    assert sorted(imports_of(source, modules)) == ["a", "a.b", "a.c", "a.g", "e"]


def imported_packages(source):
    """Top-level packages in all import statements, including those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


@pytest.mark.parametrize("folder", ["text", "storage"])
def test_text_and_files_need_no_keras(folder):
    sources = {name: path for name, path in find_modules().items() if folder_of(name) == folder}
    assert len(sources) > 5
    assert [name for name, path in sources.items() if "keras" in imported_packages(path.read_text("utf-8"))] == []
