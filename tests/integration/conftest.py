"""A tiny model, trained and exported once with the command line, for all tests of this folder."""

import pathlib
import shutil

import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.saving import load_model
from keras_transformer.text.keras_translator import KerasTranslator
from keras_transformer.training.callbacks import Progress

FOLDER = pathlib.Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if FOLDER in item.path.parents:
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
def exported(unlike, keras_translator, build_once):
    """The folder of `keras_translator`'s model, with all exports. Do not modify."""

    def build(folder):
        shutil.copytree(unlike, folder, dirs_exist_ok=True)
        loaded = keras_translator.model, (keras_translator.source_tokenizer, keras_translator.target_tokenizer)

        def export(*options):
            assert main(["export", str(folder), "--extra_length=5", *options]) == 0

        with pytest.MonkeyPatch.context() as patch:
            for module in ("saving", "export.pipeline"):
                patch.setattr(f"keras_transformer.{module}.load_finished", lambda directory: loaded)
            export("--format=saved_model,onnx,ctranslate2")
            for quantize in ("int8", "float16"):
                export("--format=onnx", f"--quantize={quantize}")

    return build_once("exported", build)


@pytest.fixture(scope="session")
def lines(toy_files):
    """The source side of the test set."""
    return (toy_files / "test.en").read_text(encoding="utf-8").splitlines()
