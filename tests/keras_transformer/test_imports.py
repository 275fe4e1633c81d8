"""What an import loads, in fresh processes, and what the library's sources may import at all."""

import ast
import pathlib

import numpy as np
import pytest

import keras_transformer as kt

PACKAGE = pathlib.Path(kt.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
FORBIDDEN = {"tensorflow", "tensorflow_text", "tensorflow_datasets", "onnx", "onnxruntime", "tf2onnx", "torch", "jax"}
#: The functions of this folder may import `training` and `export` when they are called.
COMMAND_LINE = PACKAGE / "cli"
#: Functions of these files may import a backend. They are called if Keras uses it.
OF_BACKENDS = {
    PACKAGE / "models" / "compiled.py": {"tensorflow", "jax", "torch"},
    PACKAGE / "layers" / "normalization.py": {"torch"},
    PACKAGE / "translate" / "threads.py": {"tensorflow"},
}

ALONE = """
import sys
import keras_transformer
from keras_transformer import TransformerConfig
TransformerConfig.preset("base", vocab_size=11)
print(sorted({"keras", "tensorflow", "jax", "torch", "numpy"} & set(sys.modules)))
"""
BY_KERAS = """
import sys, keras, numpy, keras_transformer
model = keras.models.load_model(sys.argv[1])
inputs = {"source": numpy.array([[4, 3]], "int32"), "target": numpy.array([[2]], "int32")}
print(type(model).__name__, float(model.predict_on_batch(inputs).sum()))
"""
SERVER = """
import sys
import keras_transformer.apps.serve.server, keras_transformer.apps.serve.app
from keras_transformer.export import OnnxTranslator
print(sorted({"keras", "tensorflow", "jax", "torch", "matplotlib"} & set(sys.modules)))
"""
BY_THE_PACKAGE = """
import sys, keras_transformer
print(type(keras_transformer.load_model(sys.argv[1])).__name__)
"""


@pytest.fixture(scope="module")
def model():
    return kt.Transformer(kt.TransformerConfig(vocab_size=11, num_layers=1, d_model=8, num_heads=2, d_ff=13))


@pytest.fixture(scope="module")
def path(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model.compile("adam", kt.losses.LabelSmoothedCrossEntropy())
    model.save(path)
    return path


def test_the_package_alone_imports_neither_keras_nor_a_backend(run_python):
    assert run_python(ALONE).strip() == "[]"


def test_the_server_imports_neither_keras_nor_a_backend(run_python):
    assert run_python(SERVER).strip() == "[]"


@pytest.mark.portable
@pytest.mark.slow
def test_keras_loads_a_model_in_a_fresh_process(model, path, run_python):
    name, total = run_python(BY_KERAS, path).split()[-2:]
    inputs = {"source": np.array([[4, 3]], "int32"), "target": np.array([[2]], "int32")}
    assert name == "Transformer"
    assert float(total) == pytest.approx(float(model.predict_on_batch(inputs).sum()), abs=1e-4)


@pytest.mark.slow
def test_the_package_loads_a_model_in_a_fresh_process(path, run_python):
    assert run_python(BY_THE_PACKAGE, path).split()[-1] == "Transformer"


def imported_packages(tree):
    """Top-level packages that any import statement names, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def at_import_time(tree):
    """The tree without the bodies of its functions and methods."""

    def outside(nodes):
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                yield from outside(node.body)
            elif not isinstance(node, ast.FunctionDef):
                yield node

    return ast.Module([*outside(tree.body)], [])


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(PACKAGE)))
def test_the_library_imports_no_backend(source):
    tree = ast.parse(source.read_text())
    looked_at = at_import_time(tree) if source in OF_BACKENDS or COMMAND_LINE in source.parents else tree
    assert not FORBIDDEN & set(imported_packages(looked_at))
    assert source not in OF_BACKENDS or FORBIDDEN & set(imported_packages(tree)) == OF_BACKENDS[source]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(PACKAGE)))
def test_the_library_imports_neither_training_nor_export(source):
    tree = ast.parse(source.read_text())
    looked_at = at_import_time(tree) if COMMAND_LINE in source.parents else tree
    modules = [node.module or "" for node in ast.walk(looked_at) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(looked_at) if isinstance(node, ast.Import) for alias in node.names]
    assert not [
        name
        for name in modules
        if name.startswith(("keras_transformer.training", "keras_transformer.export", "keras_transformer.apps"))
    ]


def test_the_sources_are_found():
    assert {"masks.py", "layers/attention.py"} <= {str(source.relative_to(PACKAGE)) for source in SOURCES}
