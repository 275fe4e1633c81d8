"""`model.fit` of the user on the batches of `make_dataset`, as in `examples/fit.py`."""

import json
import pathlib
import random

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.training import PrepareConfig, ValidationBleu, make_dataset, prepare

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "fit.py"
#: Trains 50 steps with `train` and with the example, from the same seed. On several devices, `train` gets the model and
#: a metric. Prints how far apart the weights are, and how far the training has moved them.
PROGRAM = """
import importlib.util, json, sys

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import Transformer, TransformerConfig, load_model
from keras_transformer.training import ModelConfig, RecipeConfig, TrainConfig, train

example, prepared, folder, replicas = *sys.argv[1:4], int(sys.argv[4])
if replicas > 1:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
devices = [f"CPU:{i}" for i in range(replicas)]
sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.0}
config = TransformerConfig(vocab_size=280, **sizes)
keras.utils.set_random_seed(1)
given = Transformer(config)
initial = given.get_weights()
recipe = RecipeConfig(max_steps=50, warmup_steps=400, peak_learning_rate=0.002, weights="last", xla=False)
options = {"tokens_per_batch": 2048, "devices": ",".join(devices) if replicas > 1 else None}
if replicas > 1:
    objects = {"model": given, "metrics": [keras.metrics.SparseCategoricalAccuracy(name="own")]}
else:
    objects, options = {}, {**options, "model": ModelConfig(**sizes)}
directory = train(TrainConfig(output=f"{folder}/train", prepared=prepared, recipe=recipe, **options), **objects)
theirs = load_model(directory.model_file)

spec = importlib.util.spec_from_file_location("example", example)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.main(prepared, f"{folder}/fit.keras", epochs=2, steps=25, devices=devices, **sizes)
ours = load_model(f"{folder}/fit.keras")
assert int(ours.optimizer.iterations) == 50


def distance(weights):
    return max(float(abs(a - b).max()) for a, b in zip(weights, theirs.get_weights(), strict=True))


print(json.dumps({"apart": distance(ours.get_weights()), "moved": distance(initial)}))
"""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """A prepared corpus of numbers, with more than 50 batches of 2,048 tokens."""
    folder, draw = tmp_path_factory.mktemp("own_fit"), random.Random(1)
    lines = [" ".join(f"{draw.randrange(1000)}" for _ in range(draw.randint(1, 12))) for _ in range(4000)]
    (folder / "text").write_text("\n".join(lines))
    text = {"source": str(folder / "text"), "target": str(folder / "text")}
    tokenizer = kt.text.TokenizerConfig(vocab_size=280)
    return prepare(PrepareConfig(output=str(folder / "tokens"), **text, tokenizer=tokenizer)).path


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_the_example_trains_the_weights_of_train(tokens, run_python, tmp_path, replicas):
    found = json.loads(run_python(PROGRAM, EXAMPLE, tokens, tmp_path, replicas).splitlines()[-1])
    assert found["moved"] > 0.004
    assert found["apart"] < 2e-5


def test_a_dataset_has_the_batches_of_its_epochs(tokens, tensorflow):
    data = make_dataset(tokens, tokens_per_batch=4096, epochs=2, replicas=7, seed=3)
    steps = len(data) // 2
    batches = list(data.as_numpy_iterator())
    assert len(batches) == len(data) == 2 * steps > 10
    inputs, labels, weights = batches[0]
    assert inputs.keys() == {"source", "target", "source_segments", "target_segments"}
    assert len(labels) % 7 == 0 and labels.shape == weights.shape == inputs["target"].shape
    assert ((weights > 0) == (labels != 0)).all() and weights.mean() == pytest.approx(1)
    assert inputs["source_segments"].max() > 1

    def sentences(epoch):
        rows = (row for _, labels, _ in batches[epoch * steps : (epoch + 1) * steps] for row in labels)
        return [tuple(part) for row in rows for part in np.split(row, np.flatnonzero(row == 3) + 1) if part.any()]

    assert sorted(sentences(0)) == sorted(sentences(1)) and sentences(0) != sentences(1)
    assert len(sentences(0)) == 4000 - 40


def test_buckets_and_validation(tokens, tensorflow):
    batches = list(make_dataset(tokens, "validation", tokens_per_batch=512, num_buckets=3).as_numpy_iterator())
    assert len({labels.shape[1] for _, labels, _ in batches}) == 3
    assert all(inputs.keys() == {"source", "target"} for inputs, _, _ in batches)
    assert all(set(np.unique(weights)) <= {0, 1} for *_, weights in batches)
    assert sum(np.count_nonzero(labels == 3) for _, labels, _ in batches) == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "`split` must be one of train, validation. Received: split='test'"),
        ({"epochs": 0}, "`epochs` must be at least 1. Received: epochs=0"),
        ({"replicas": 1.5}, "`replicas` must be an integer. Received: replicas=1.5"),
        ({"tokens_per_batch": 3}, "`tokens_per_batch` must be at least "),
    ],
)
def test_wrong_arguments_are_refused(tokens, tensorflow, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make_dataset(tokens, **arguments)


def test_several_corpora_are_refused(tokens, tmp_path, tensorflow):
    record = json.loads((tokens / "tokens.json").read_text())
    record["statistics"]["train.a"] = record["statistics"].pop("train")
    (tmp_path / "tokens.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"`prepared` must contain one corpus.*with train\.a$"):
        make_dataset(tmp_path)


def test_bleu_needs_no_validation_data(tokens):
    import keras

    bleu = ValidationBleu.from_prepared(tokens, 3, batch_size=2)
    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 13}
    model = kt.Transformer(kt.TransformerConfig(vocab_size=280, **sizes))
    model.compile("sgd", kt.losses.LabelSmoothedCrossEntropy(), run_eagerly=True)
    ids = np.array([[4, 5, 3]])
    best = keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=9)
    history = model.fit({"source": ids, "target": ids}, ids, epochs=2, verbose=0, callbacks=[bleu, best])
    assert history.history["val_bleu"] == [bleu.bleu] * 2 and best.best == bleu.bleu >= 0


def test_bleu_requires_sentences(tokens):
    bleu = ValidationBleu.from_prepared(tokens, 5)
    assert bleu.source == bleu.target and len(bleu.source) == 5
    with pytest.raises(ValueError, match="`source` and `target` must have the same number of sentences, at least 1"):
        ValidationBleu(bleu.tokenizers, [], [])
