import json

import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.training.config import DataConfig
from keras_transformer.training.datasets import load_corpus, number_words
from keras_transformer.training.evaluate import evaluate
from keras_transformer.translation import KerasTranslator

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_words, "_LIMIT", 10_000)
        patch.setattr(number_words, "_SIZES", {"train": 6_000, "validation": 100, "test": 100})
        number_words.NumberWords(data_dir=folder).download_and_prepare()
    return folder


@pytest.fixture(scope="module")
def model_directory(data_dir, tmp_path_factory):
    """A small model of 700 updates on the numbers below 10,000."""
    path = tmp_path_factory.mktemp("runs") / "numbers"
    options = {
        "data_dir": data_dir,
        "output": path,
        "max_length": 48,
        "tokenizer.vocab_size": 400,
        "model.d_model": 64,
        "model.d_ff": 128,
        "model.dropout": 0.0,
        "recipe.max_steps": 700,
        "recipe.warmup_steps": 100,
        "recipe.peak_learning_rate": 0.003,
    }
    assert main(["train", *(f"--{name}={value}" for name, value in options.items())]) == 0
    return path


def test_the_loss_falls(model_directory):
    losses = [e["loss"] for e in json.loads((model_directory / "checkpoints" / "validations.json").read_text())]
    assert losses[-1] < 1.0 < losses[0]


def test_numbers_never_seen_are_translated(model_directory, data_dir):
    held_out = load_corpus(DataConfig(data_dir=str(data_dir), validation_split="test")).validation
    source, reference = zip(*([side.decode() for side in pair] for pair in held_out.as_numpy_iterator()), strict=True)
    scores = evaluate(KerasTranslator(model_directory, BeamSearch()), source, reference)
    print(scores)
    assert scores.sentences == 100
    assert scores.exact_match > 0.8
    assert scores.chrf > 95
