"""Only some modules of the training may import TensorFlow or JAX."""

import ast
import pathlib

import keras_transformer.training as package

FOLDER = pathlib.Path(package.__file__).parent
FORBIDDEN = {"tensorflow", "tensorflow_text", "tensorflow_datasets", "jax"}


def imported(source):
    """Top-level packages in all import statements, including those inside functions."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


def test_tensorflow_and_jax_are_imported_in_few_places():
    found = {str(source.relative_to(FOLDER)): FORBIDDEN & set(imported(source)) for source in FOLDER.rglob("*.py")}
    assert {name: names for name, names in found.items() if names} == {
        "backends/tensorflow.py": {"tensorflow"},
        "backends/workers.py": {"tensorflow"},
        "backends/jax.py": {"jax"},
        "dataset.py": {"tensorflow"},  # The type of its result only.
        "datasets/by_name.py": {"tensorflow_datasets"},
        "datasets/number_words.py": {"tensorflow_datasets"},
    }
