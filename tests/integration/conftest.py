"""A tiny model, trained and exported once with the command line, for all tests of this folder."""

import contextvars
import functools
import http.server
import io
import pathlib
import shutil
import threading

import numpy as np
import onnx
import pytest
import sentencepiece

import keras_transformer as kt
from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.onnx import export as onnx_export
from keras_transformer.export.verify.equality import Agreement
from keras_transformer.saving import load_model
from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text import Tokenizer
from keras_transformer.training.progress import Progress
from keras_transformer.translate.keras_translator import KerasTranslator

FOLDER = pathlib.Path(__file__).parent
_CODES = ("en", "de", "fr")
_WORDS = [f"{a}{b}{c}{d}" for a in "bdfg" for b in "aeiou" for c in "klmn" for d in "aio"]


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
            # In a context of its own, so that the weights are in the graph, which is kept longer than they are.
            made = contextvars.Context().run(convert, function, signature, inputs, outputs, variables)
            converted[graph] = made.SerializeToString()
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


@pytest.fixture(scope="session")
def make_directory():
    """Makes a finished model directory of three languages. `languages` maps their tokens to those of `Languages`."""
    return _directory_of_languages


def _tokenizer_of_languages():
    """One without bytes, as those of imported models. Random models would write bytes that are no text."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(_WORDS[i : i + 6]) for i in range(len(_WORDS) - 6)]),
        model_writer=model,
        vocab_size=80,
        control_symbols=[f"<{code}>" for code in _CODES],
        **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3},
        minloglevel=2,
    )
    return Tokenizer(model.getvalue())


def _directory_of_languages(path, languages):
    """A model with random weights, whose translations depend on the source and on its languages."""
    tokenizer = _tokenizer_of_languages()
    tokens = {code: tokenizer.pieces.index(f"<{code}>") for code in _CODES}
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 13, "norm_first": True, "tie_output": False}
    model = kt.Transformer(kt.TransformerConfig(vocab_size=tokenizer.vocab_size, **sizes))
    random = np.random.default_rng(1)
    for weight in model.weights:
        noise = random.normal(size=weight.shape)
        weight.assign(noise / 4 if len(weight.shape) > 1 else weight.numpy() + noise / 5)
    record = Languages(**languages(tokens)).to_record()
    return ModelDirectory.create(path, model, [tokenizer], **record)


class _Server:
    """A plain file server, which can be stopped and started again at the same address."""

    def __init__(self, folder):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                """Nothing."""

        self._handler = functools.partial(Handler, directory=folder)
        self._port = 0
        self.start()

    def start(self):
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", self._port), self._handler)
        self._port = self._server.server_port
        self.url = f"http://127.0.0.1:{self._port}/"
        threading.Thread(target=self._server.serve_forever).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def serve():
    """Serves folders until the end of the test."""
    servers = []

    def serve(folder):
        servers.append(_Server(folder))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")  # Its event loop would disturb other files.
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    file = shutil.which("chromium") or shutil.which("google-chrome")
    if file is None:
        pytest.skip("needs Chromium or Chrome")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as context:
        browser = context.chromium.launch(executable_path=file, args=options)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page without cookies or caches. Fails the test if a script fails or another host is asked."""
    context, hosts, errors = browser.new_context(), set(), []
    page = context.new_page()
    context.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    page.on("pageerror", lambda error: errors.append(error))
    yield page
    context.close()
    assert not errors and len(hosts) <= 1
