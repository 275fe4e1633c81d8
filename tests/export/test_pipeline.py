"""What an export needs is checked before the model is loaded, which is slow."""

import sys

import pytest

from keras_transformer.export import ExportConfig, pipeline
from keras_transformer.storage.model_directory import ModelDirectory


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory whose model must not be loaded."""
    monkeypatch.setattr(ModelDirectory, "require_finished", lambda self: {})
    monkeypatch.setattr(pipeline, "load_finished", lambda directory: pytest.fail("The model is loaded."))
    return tmp_path


@pytest.mark.parametrize(("format", "module"), [("ctranslate2", "ctranslate2"), ("huggingface", "safetensors.numpy")])
def test_a_missing_library(directory, monkeypatch, format, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"is not installed: pip install 'keras-transformer-kit\[{format}\]'"):
        pipeline.export(directory, ExportConfig(format=format))


def test_another_backend(directory, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    with pytest.raises(ValueError, match="tensorflow .*Received: KERAS_BACKEND=jax"):
        pipeline.export(directory, ExportConfig())


def test_texts_of_different_lengths(directory):
    for name, lines in (("text.en", "one\ntwo\n"), ("text.de", "eins\n")):
        (directory / name).write_text(lines)
    texts = {"source": str(directory / "text.en"), "reference": str(directory / "text.de")}
    with pytest.raises(ValueError, match="`reference` .*Received: 2 lines in source, 1 in reference"):
        pipeline.export(directory, ExportConfig(quantize="int8", **texts))
