"""Training on JAX, in processes in which TensorFlow cannot be imported."""

import json

import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.saving import load_model
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.checkpoints import CheckpointFiles

pytestmark = pytest.mark.nightly

#: Runs commands and prints their exit statuses. Each has arguments and the step that gets SIGTERM, or none.
PROGRAM = """
import json, os, signal, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "tensorflow_datasets"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())

from keras_transformer.cli import main
from keras_transformer.training import fit

class Killer(fit.Progress):
    stop_at = None

    def on_train_batch_begin(self, batch, logs=None):
        if self.step + 1 == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)

fit.Progress = Killer
statuses = []
for arguments, Killer.stop_at in json.loads(sys.argv[1]):
    statuses.append(main(arguments))
print(json.dumps(statuses))
"""
#: Gradient accumulation, a moving average, BLEU, dropout and the largest seed in one run.
OPTIONS = {
    "recipe.seed": 2**32 - 1,
    "tokens_per_device": 100,
    "recipe.max_steps": 8,
    "recipe.validate_every": 3,
    "recipe.checkpoint_every": 2,
    "recipe.moving_average": 0.9,
    "recipe.bleu_sentences": 2,
    "recipe.xla": None,
}
DATA = ("source", "target", "max_length", "tokenizer.vocab_size")


@pytest.fixture(scope="module")
def tokens(toy_files, tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared") / "tokens"
    files = [f"--source={toy_files / 'train.en'}", f"--target={toy_files / 'train.de'}"]
    assert main(["prepare", f"--output={path}", *files, "--max_length=40", "--tokenizer.vocab_size=300"]) == 0
    return path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The environment in which JAX keeps what it compiled, because all runs compile the same functions."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@pytest.fixture
def on_jax(run_python, compiled):
    pytest.importorskip("jax")

    def on_jax(*commands):
        printed = run_python(PROGRAM, json.dumps(commands), KERAS_BACKEND="jax", **compiled)
        return json.loads(printed.splitlines()[-1])

    return on_jax


@pytest.fixture
def on_tokens(arguments, tokens):
    def on_tokens(output, **changes):
        return list(map(str, arguments(output, **{**dict.fromkeys(DATA), "prepared": tokens, **OPTIONS, **changes})))

    return on_tokens


def validations_of(path):
    return json.loads((path / "checkpoints" / "validations.json").read_text())


def test_an_interrupted_run_ends_as_an_unbroken_one(on_jax, on_tokens, tmp_path):
    whole, stopped = (on_tokens(tmp_path / name) for name in ("whole", "stopped"))
    in_pairs = on_tokens(tmp_path / "in_pairs", **{"recipe.steps_per_execution": 2})
    assert on_jax((whole, None), (stopped, 5), (stopped, None), (in_pairs, None)) == [0, 143, 0, 0]
    found = [
        [(v["step"], v["loss"], v["bleu"]) for v in validations_of(tmp_path / name)] for name in ("whole", "stopped")
    ]
    assert found[0] == found[1] and [step for step, *_ in found[0]] == [3, 6, 8]
    models = [load_model(tmp_path / name / "model.keras").get_weights() for name in ("whole", "stopped")]
    for one, other in zip(*models, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [v["step"] for v in validations_of(tmp_path / "in_pairs")] == [4, 8]
    files = [CheckpointFiles(tmp_path / name / "checkpoints") for name in ("whole", "stopped", "in_pairs")]
    states, last = [file.read(8) for file in files], [load_model(file.path(8)).get_weights() for file in files]
    assert states[0].random == states[1].random == states[2].random
    for one, *others in zip(*last, strict=True):
        for other in others:
            np.testing.assert_array_equal(one, other)
    assert list((tmp_path / "whole" / "logs").rglob("events.out.tfevents.*"))


def test_text_files_need_no_tensorflow(on_jax, arguments, tmp_path):
    changes = {"recipe.xla": None, "recipe.max_steps": 2, "recipe.attention": "fused"}
    assert on_jax((list(map(str, arguments(tmp_path / "run", **changes))), None)) == [0]
    assert not (tmp_path / "run" / "tokens").exists()
    assert ModelDirectory(tmp_path / "run").record()["recipe"]["attention"] == "fused"


def test_options_that_jax_lacks_are_refused(on_jax, on_tokens, run_python, tmp_path):
    names = ["--dataset=number_words/en_de", f"--output={tmp_path / 'run'}"]
    assert on_jax((["train", *names], None), (on_tokens(tmp_path / "run", **{"recipe.xla": "false"}), None)) == [2, 2]
    assert not (tmp_path / "run").exists()


@pytest.fixture
def initial(tokens, tmp_path):
    """A finished model directory with random weights, no dropout, and the tokenizer of the tokens."""
    import keras_transformer as kt

    directory = ModelDirectory(tmp_path / "initial")
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.0}
    config = kt.TransformerConfig(vocab_size=300, **sizes)
    directory.write_tokenizers((Tokenizer(tokens / "tokenizer.model").model,))
    kt.Transformer(config).save(directory.model_file)
    directory.write_record({"model_config": {"vocab_size": 300, **sizes}}, finished=True)
    return directory.path


@pytest.mark.parametrize(
    ("tokens_per_device", "num_buckets"),
    [
        (None, None),
        (100, 2),
        pytest.param(None, 2, marks=pytest.mark.nightly),
        pytest.param(100, None, marks=pytest.mark.nightly),
    ],
)
def test_the_losses_are_those_of_tensorflow(
    on_jax, on_tokens, initial, tmp_path, num_buckets, tokens_per_device, tensorflow
):
    without = dict.fromkeys(("model.num_layers", "model.d_model", "model.num_heads", "model.d_ff", "model.use_bias"))
    changes = {**without, "init_from": initial, "num_buckets": num_buckets, "recipe.bleu_sentences": None}
    changes |= {"tokens_per_device": tokens_per_device, "recipe.validate_every": 2}
    attention = "fused" if num_buckets else "plain"
    assert on_jax((on_tokens(tmp_path / "jax", **changes, **{"recipe.attention": attention}), None)) == [0]
    assert main(on_tokens(tmp_path / "tensorflow", **changes, **{"recipe.xla": "false"})) == 0
    ours, theirs = (validations_of(tmp_path / name) for name in ("jax", "tensorflow"))
    assert [v["step"] for v in ours] == [2, 4, 6, 8]
    for name in ("loss", "training_loss"):
        assert [v[name] for v in ours] == pytest.approx([v[name] for v in theirs], rel=1e-4)
    assert ours[-1]["loss"] < ours[0]["loss"] - 0.1
