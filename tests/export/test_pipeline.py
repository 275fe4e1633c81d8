"""What an export needs is checked before the model is loaded, which is slow."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from keras_transformer.decoding import SpecialIds
from keras_transformer.export import ExportConfig, pipeline
from keras_transformer.export.format import Exported
from keras_transformer.export.programs import prefix_programs
from keras_transformer.export.verify.equality import batch_sizes
from keras_transformer.storage.languages import Languages
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


@pytest.fixture
def exported():
    """A model that needs no source token, and is forced to write German or French."""
    tokenizer = SimpleNamespace(
        encode=lambda lines: [[*range(5, 5 + len(line)), 3] for line in lines], text_constraints=None
    )
    config = SimpleNamespace(max_length=9, source_vocabulary=50)
    model = SimpleNamespace(
        config=config, count_params=lambda: 100, max_length=9, vocab_size=50, special_ids=SpecialIds()
    )

    class WithLanguages(Exported):
        languages = Languages(target="de", target_tokens={"de": 4, "fr": 5}, forces_target=True)

    return WithLanguages(model, None, (tokenizer, tokenizer), None)


def test_sentences_of_a_text_take_the_place_of_random_ones(exported, monkeypatch):
    """Again and again, with the tokens of the default languages, and without empty and long lines."""
    monkeypatch.setattr(type(exported), "languages", Languages(target_tokens={"de": 4}))
    text, rows = ["a", "", "abc", "a long line"], [[4, 5, 3, 0, 0], [4, 5, 6, 7, 3]]
    batches = pipeline._batches(exported._replace(texts=[text, text]))
    assert [len(batch) for batch in batches] == batch_sizes() == [len(batch) for batch in pipeline._batches(exported)]
    assert [row[row > 0].tolist() for batch in batches[:2] for row in batch] == [[4, 5, 3], rows[1]]
    assert batches[-1].tolist() == rows * 16
    for empty in ([], [[""], [""]]):
        random = np.concatenate([batch.ravel() for batch in pipeline._batches(exported._replace(texts=empty))])
        assert random.max() > 7 and 4 in random


def test_the_language_of_a_text_takes_the_place_of_random_prefixes(exported):
    def prefixes(texts):
        programs = prefix_programs(exported._replace(texts=texts), "onnx_int8", SimpleNamespace(search=None), None)
        return programs["onnx_int8 prefix"].reference._prefix(np.ones((100, 5), "int32"))

    assert prefixes([["a"], ["b"]]).tolist() == 100 * [[4]]
    random = prefixes([])
    assert random.shape == (100, 3) and {*random[:, 0]} == {4, 5} and len({*random[:, 1]}) > 20
