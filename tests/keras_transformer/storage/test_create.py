"""A model made by hand becomes a model directory, with which every command works."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.storage import ModelDirectory
from keras_transformer.text import Tokenizer, TokenizerConfig
from keras_transformer.text.tokenization import train_sentencepiece
from keras_transformer.translate import KerasTranslator
from keras_transformer.translate.finished_model import load_finished

CONFIG = kt.TransformerConfig(vocab_size=270, num_layers=1, d_model=12, num_heads=2, d_ff=13)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_sentencepiece(["one two three"], TokenizerConfig(vocab_size=270)))


@pytest.fixture(scope="module")
def model(randomize):
    return randomize(kt.Transformer(CONFIG), scale=0.3)


def test_a_model_is_written_and_translates(model, tokenizer, tmp_path):
    directory = ModelDirectory.create(tmp_path / "run", model, [tokenizer], ("en", "de"))
    assert directory.languages == ("en", "de") and directory.record()["finished"]
    loaded, tokenizers = load_finished(directory)
    ids = np.array(tokenizer.encode(["one two"]), "int32")
    np.testing.assert_array_equal(loaded.generate(ids).tokens, model.generate(ids).tokens)
    assert [one.sha256 for one in tokenizers] == [tokenizer.sha256] * 2
    assert len(KerasTranslator(directory.path).translate(["one two"])) == 1


def test_two_tokenizers_are_kept(tokenizer, tmp_path):
    model = kt.Transformer(dataclasses.replace(CONFIG, share_embeddings=False, source_vocab_size=280))
    source = Tokenizer(train_sentencepiece(["one two three four five six"], TokenizerConfig(vocab_size=280)))
    directory = ModelDirectory.create(tmp_path / "run", model, [source, tokenizer])
    assert [one.vocab_size for one in load_finished(directory)[1]] == [280, 270]


def test_a_directory_is_replaced_on_request_only(model, tokenizer, tmp_path):
    ModelDirectory.create(tmp_path / "run", model, [tokenizer])
    with pytest.raises(ValueError, match="contains a finished model"):
        ModelDirectory.create(tmp_path / "run", model, [tokenizer])
    ModelDirectory.create(tmp_path / "run", model, [tokenizer], ("de", "en"), overwrite=True)
    assert ModelDirectory(tmp_path / "run").languages == ("de", "en")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocab_size": 271}, r"vocabularies of the tokenizers, \(270, 270\) .*Received: \(271, 271\)"),
        ({"bos_id": 1}, r"must be those of the tokenizers, \(0, 2, 3\). Received: \(0, 1, 3\)"),
    ],
)
def test_tokenizers_of_another_model_are_refused(fields, message, tokenizer, tmp_path):
    with pytest.raises(ValueError, match=message):
        ModelDirectory.create(tmp_path / "run", kt.Transformer(dataclasses.replace(CONFIG, **fields)), [tokenizer])
    assert not any(tmp_path.iterdir())


def test_a_model_without_ids_is_refused(tokenizer, tmp_path):
    source = keras.Sequential([keras.Input((5, 12)), keras.layers.Dense(12)])
    with pytest.raises(ValueError, match="`model` must have token ids as source"):
        ModelDirectory.create(tmp_path / "run", kt.Transformer(CONFIG, source=source), [tokenizer])
    assert not any(tmp_path.iterdir())
