"""A tiny model, trained and exported once with the command line, for all tests of this folder."""

import pathlib
import shutil

import numpy as np
import onnx
import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.onnx import export as onnx_export
from keras_transformer.export.verify.equality import Agreement
from keras_transformer.saving import load_model
from keras_transformer.training.progress import Progress
from keras_transformer.translate.keras_translator import KerasTranslator

FOLDER = pathlib.Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # Before pytest selects by markers.
def pytest_collection_modifyitems(items):
    for item in items:
        if FOLDER in item.path.parents:
            if {"exported", "export_all"} & set(item.fixturenames):
                item.add_marker(pytest.mark.slow)  # The exports take a minute.
            # A warning of TensorFlow with NumPy 2, in `keras.Model.save` and in the SavedModel code.
            item.add_marker(pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"))


@pytest.fixture(scope="session")
def runs(arguments, build_once):
    """The folder of the finished run, `toy`, and a copy from after step 14, `killed`. Do not modify."""

    def build(folder):
        class Spy(Progress):
            def on_train_batch_end(self, batch, logs=None):
                super().on_train_batch_end(batch, logs)
                if self.bar.n == 14:
                    shutil.copytree(folder / "toy", folder / "killed")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("keras_transformer.training.fit.Progress", Spy)
            assert main(arguments(folder / "toy")) == 0

    return build_once("runs", build)


@pytest.fixture(scope="session")
def model_directory(runs):
    """The finished run. Do not modify."""
    return runs / "toy"


@pytest.fixture(scope="session")
def unlike(model_directory, build_once):
    """A copy of the run with random weights, so that translations differ. Do not modify."""

    def build(folder):
        shutil.copytree(model_directory, folder, dirs_exist_ok=True)
        model, rng = load_model(folder / "model.keras"), np.random.default_rng(4)
        model.set_weights([weight + rng.normal(scale=0.5, size=weight.shape) for weight in model.get_weights()])
        model.save(folder / "model.keras")

    return build_once("unlike", build)


@pytest.fixture(scope="session")
def keras_translator(unlike):
    """A translator with the exported model and search, shared because compiling the search takes seconds."""
    return KerasTranslator(unlike, BeamSearch(extra_length=5))


@pytest.fixture(scope="session")
def export_all(unlike, keras_translator):
    """Copies `keras_translator`'s model to a folder and exports it to all formats."""

    def export_all(folder):
        shutil.copytree(unlike, folder, dirs_exist_ok=True)
        loaded = keras_translator.model, (keras_translator.source_tokenizer, keras_translator.target_tokenizer)
        with pytest.MonkeyPatch.context() as patch:
            for module in ("translate.finished_model", "export.pipeline"):
                patch.setattr(f"keras_transformer.{module}.load_finished", lambda directory: loaded)
            patch.setattr(onnx_export, "convert", _once(onnx_export.convert))
            for options in (
                ["saved_model,onnx,ctranslate2"],
                ["onnx", "--quantize=int8"],
                ["onnx", "--quantize=float16"],
            ):
                assert main(["export", str(folder), "--extra_length=5", "--format", *options]) == 0

    return export_all


def _once(convert):
    """A `convert` that converts each graph once per dtype: the int8 exports start from the graphs of float32."""
    converted = {}

    def convert_once(function, signature, inputs, outputs, variables):
        graph = (*inputs, *outputs, variables[0].dtype)
        if graph not in converted:
            converted[graph] = convert(function, signature, inputs, outputs, variables).SerializeToString()
        return onnx.ModelProto.FromString(converted[graph])

    return convert_once


@pytest.fixture(scope="session")
def exported(export_all, build_once):
    """The folder of `keras_translator`'s model, with all exports. Do not modify.

    The exports are not verified, which would take most of the time: the tests compare them with Keras.
    """

    def build(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("keras_transformer.export.pipeline._verified", lambda *args: Agreement(0, 0, 0, 0.0))
            export_all(folder)

    return build_once("exported", build)


@pytest.fixture(scope="session")
def lines(toy_files):
    """The source side of the test set."""
    return (toy_files / "test.en").read_text(encoding="utf-8").splitlines()
