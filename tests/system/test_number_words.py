import contextlib
import io
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.evaluation.scores import evaluate
from keras_transformer.training.data_config import DataConfig
from keras_transformer.training.datasets import load_corpus, number_words
from keras_transformer.translate.keras_translator import KerasTranslator
from keras_transformer.translate.load import RUNTIMES

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_words, "_LIMIT", 10_000)
        patch.setattr(number_words, "_SIZES", {"train": 6_000, "validation": 100, "test": 100})
        number_words.NumberWords(data_dir=folder).download_and_prepare()
    return folder


@pytest.fixture(scope="module")
def run(data_dir, tmp_path_factory):
    """A small model after 300 updates on numbers below 10,000, and the output of the training."""
    path, said = tmp_path_factory.mktemp("runs") / "numbers", io.StringIO()
    options = {
        "data_dir": data_dir,
        "output": path,
        "max_length": 48,
        "tokens_per_batch": 1024,
        "tokenizer.vocab_size": 400,
        "model.d_model": 64,
        "model.d_ff": 128,
        "model.dropout": 0.0,
        "recipe.epochs": 100,
        "recipe.max_steps": 300,
        "recipe.validate_every": 20,
        "recipe.warmup_steps": 100,
        "recipe.peak_learning_rate": 0.003,
        "recipe.xla": "false",
    }
    with contextlib.redirect_stderr(said):
        assert main(["train", *(f"--{name}={value}" for name, value in options.items())]) == 0
    return path, said.getvalue()


def test_the_task_is_learnt(run):
    accuracies = [float(found) for found in re.findall(r"step \d+: .* token accuracy ([\d.]+)", run[1])]
    assert len(accuracies) == 15
    assert accuracies[0] < 0.5 and accuracies[-1] > 0.95


def test_numbers_never_seen_are_translated(run, data_dir):
    held_out = load_corpus(DataConfig(data_dir=str(data_dir), validation_split="test")).validation
    source, reference = zip(*held_out, strict=True)
    scores = evaluate(KerasTranslator(run[0], BeamSearch()), source, reference)
    assert scores.sentences == 100
    assert scores.exact_match > 0.9
    assert scores.chrf > 95


@pytest.mark.nightly
def test_the_quickstart_shows_every_runtime(run, tmp_path):
    """Uses an existing model. It knows only a part of the numbers, so the exit status is 1."""
    shutil.copytree(run[0], tmp_path / "run")
    quickstart = pathlib.Path(__file__).parents[2] / "examples" / "quickstart.py"
    completed = subprocess.run([sys.executable, quickstart, tmp_path / "run"], capture_output=True, text=True)
    assert completed.returncode == 1, completed.stderr
    shown = next(line for line in completed.stdout.splitlines() if line.startswith("runtimes: "))
    assert shown == f"runtimes: {', '.join(name for name in RUNTIMES if name != 'onnx_float16')}"
    assert re.search(r"exact match .*500 .*: \d+\.\d%", completed.stdout)
