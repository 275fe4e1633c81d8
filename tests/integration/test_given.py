"""`train` with a model, a loss, metrics and callbacks of the user."""

import json
import re
import sys

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer.cli import main
from keras_transformer.saving import load_model
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.recorded_folder import ModelDirectoryError
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.training import ModelConfig, PrepareConfig, RecipeConfig, TrainConfig, prepare, train
from keras_transformer.training.averaging import average
from keras_transformer.training.checkpoints import CheckpointFiles
from keras_transformer.training.data.batches import make_batches
from keras_transformer.training.data_config import BatchConfig
from keras_transformer.training.given import Given, rebuilt

SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 32}
SMALL, DEFAULT = ModelConfig(**SIZES), ModelConfig()
#: XLA takes longer to compile than so few steps save.
FASTEST = {"xla": False} if keras.backend.backend() == "tensorflow" else {}


@keras.saving.register_keras_serializable(package="test_given")
class Halving(keras.layers.Layer):
    """A feed-forward layer of the user, with one weight."""

    def build(self, shape):
        self.scale = self.add_weight((shape[-1],), "ones", name="scale")

    def call(self, inputs):
        return 0.5 * inputs * ops.cast(self.scale, inputs.dtype)


@keras.saving.register_keras_serializable(package="test_given")
def squared_cross_entropy(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True) ** 2


class Notes(keras.callbacks.Callback):
    """Notes what it sees. May stop the training."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.stop_at = stop_at
        self.steps, self.epochs, self.calls = 0, [], []

    def on_train_begin(self, logs=None):
        self.calls.append("begin")
        self.initial = self.model.get_weights()

    def on_train_end(self, logs=None):
        self.calls.append("end")

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        assert type(logs["loss"]) is float and self.params["steps"] <= 5
        if self.steps == self.stop_at:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(dict(logs))


#: Callbacks of the user, for `--recipe.callbacks`: they stop the training at step 5.
MODULE = """
import keras


class Stopping(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self.model.stop_training = self.steps == 5


def make():
    return [Stopping()]


def wrong():
    return Stopping()


numbers = [1]
"""


@pytest.fixture(scope="module")
def tokens(toy_files, tmp_path_factory):
    path = tmp_path_factory.mktemp("given") / "tokens"
    files = {"source": str(toy_files / "train.en"), "target": str(toy_files / "train.de")}
    prepare(PrepareConfig(output=str(path), **files, tokenizer=kt.text.TokenizerConfig(vocab_size=300)))
    return path


@pytest.fixture
def config(tokens, tmp_path):
    def config(name="run", model=SMALL, **recipe):
        options = {"validate_every": 5, "checkpoint_every": 4, "warmup_steps": 2, **FASTEST, **recipe}
        return TrainConfig(
            output=str(tmp_path / name),
            prepared=str(tokens),
            tokens_per_batch=400,
            model=model,
            recipe=RecipeConfig(max_steps=12, peak_learning_rate=0.02, **options),
        )

    return config


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The module of callbacks, in the current folder."""
    (tmp_path / "my_callbacks.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_callbacks", None)


def make_model(vocab_size=300, num_layers=1, **kwargs):
    """A model with a layer of the user, with weights of its own."""
    keras.utils.set_random_seed(5)
    config = kt.TransformerConfig(vocab_size=vocab_size, **{**SIZES, "num_layers": num_layers})
    return kt.Transformer(config, encoder_layer=kt.layers.EncoderLayer(16, 2, feed_forward=Halving()), **kwargs)


def validations_of(directory):
    return json.loads((directory.checkpoints / "validations.json").read_text())


@pytest.mark.slow
def test_a_given_model_is_trained_from_its_weights_and_resumed_with_it_alone(config):
    model, run, notes = make_model(), config("run", DEFAULT), Notes()
    directory = train(run, model=model, callbacks=[notes])
    trained = load_model(directory.model_file)
    assert type(trained.encoder.layers[0].feed_forward.sublayer) is Halving
    for weight, initial, found in zip(model.get_weights(), notes.initial, trained.get_weights(), strict=True):
        np.testing.assert_array_equal(initial, weight)
        assert (found != weight).any()
    record = directory.record()["given"]["model"]
    assert record["config"]["d_ff"] == 32 and "encoder_layer" in record

    directory.write_record(directory.record(), finished=False)
    with pytest.raises(ModelDirectoryError, match=r"model\.config\.num_layers is 1, given 2\. To resume it"):
        train(run, model=make_model(num_layers=2))
    with pytest.raises(ModelDirectoryError, match=r"model is \{.*\}, given None"):
        train(run)
    assert train(run, model=make_model()).record()["finished"]  # Its layers have other names.
    assert average(directory.path, 2) == CheckpointFiles(directory.checkpoints).steps()[-2:]


@pytest.mark.slow
def test_a_loss_metrics_and_callbacks_of_the_user(config):
    notes = Notes(stop_at=7)
    directory = train(config(bleu_sentences=2), callbacks=[notes], metrics=["accuracy"], loss=squared_cross_entropy)
    assert notes.calls == ["begin", "end"] and notes.steps == 7 and len(notes.epochs) == 2
    assert directory.record()["finished"] and directory.record()["weights_of_steps"][0] in (5, 7)
    assert [found["step"] for found in validations_of(directory)] == [5, 7]
    assert all("val_bleu" in logs for logs in notes.epochs)
    # With these sample weights, the accuracy of Keras is that of the tokens.
    assert notes.epochs[-1]["val_accuracy"] == pytest.approx(notes.epochs[-1]["val_token_accuracy"], abs=1e-6)
    assert directory.record()["given"]["metrics"] == ["accuracy"]

    model = load_model(directory.model_file)
    batches = make_batches(*TokenDirectory(config().prepared).sides("validation"), BatchConfig(tokens_per_batch=400))
    values = []
    for number in range(batches.steps):
        inputs, labels, weights = batches.validation_batch(number)
        values.append(ops.convert_to_numpy(squared_cross_entropy(labels, model(inputs)))[weights > 0])
    best = min(found["loss"] for found in validations_of(directory))
    assert best == pytest.approx(np.concatenate(values).mean(), rel=1e-4)

    directory.write_record(directory.record(), finished=False)
    with pytest.raises(ModelDirectoryError, match=r"loss is \{.*\}, given None; metrics is \['accuracy'\], given None"):
        train(config(bleu_sentences=2))


@pytest.mark.nightly
def test_the_command_line_runs_callbacks(arguments, module, tmp_path):
    options = {"recipe.validate_every": 5, "recipe.callbacks": "my_callbacks:make"}
    assert main(arguments(tmp_path / "run", **options)) == 0
    directory = ModelDirectory(tmp_path / "run")
    assert directory.record()["finished"] and directory.record()["weights_of_steps"] == [5]
    assert [found["step"] for found in validations_of(directory)] == [5]


@pytest.mark.nightly
def test_the_default_loss_given_as_that_of_the_user_trains_as_the_default(config):
    same = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    given, default = train(config("given"), loss=same), train(config("default", label_smoothing=0.0))
    losses = [[found["loss"] for found in validations_of(directory)] for directory in (given, default)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_callbacks", "`recipe.callbacks` must have the form MODULE:FUNCTION. Received: callbacks='my_callbacks'"),
        (
            "none:make",
            "`recipe.callbacks` must name a module that can be imported. Received: none (ModuleNotFound",
        ),
        ("my_callbacks:none", "`recipe.callbacks` must name a function of my_callbacks. Received: callbacks='my_callb"),
        ("my_callbacks:numbers", "`recipe.callbacks` must name a function of my_callbacks. Received: callbacks='my_c"),
        ("my_callbacks:wrong", "`my_callbacks:wrong` must be a list of Keras callbacks. Received: <my_callbacks."),
    ],
)
def test_a_wrong_name_of_callbacks_is_refused_before_work(arguments, module, tmp_path, capsys, name, message):
    assert main(arguments(tmp_path / "run", **{"recipe.callbacks": name})) == 2
    assert f"error: {message}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def sum_of_tokens(labels, logits):
    return ops.sum(keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))


@pytest.mark.parametrize(
    ("recipe", "given", "message"),
    [
        ({}, {"callbacks": keras.callbacks.Callback()}, "`callbacks` must be a list of Keras callbacks. Received: <"),
        ({}, {"callbacks": [print]}, "`callbacks` must be a list of Keras callbacks. Received: [<"),
        ({}, {"loss": "none"}, "`loss` must be an object that Keras can save and load"),
        ({}, {"loss": lambda labels, logits: logits[..., 0]}, "`loss` must be an object that Keras can save and load"),
        (
            {},
            {"loss": kt.losses.LabelSmoothedCrossEntropy(pad_id=0)},
            "The reduction of `loss` must be one of sum",
        ),
        ({"r_drop": 1.0}, {"loss": "mse"}, "`recipe.r_drop` must not be given with `loss`. Received: r_drop=1.0"),
        ({}, {"metrics": ["none"]}, "`metrics` must be an object that Keras can save and load"),
        ({}, {"model": keras.Sequential()}, "`model` must be a Transformer. Received: model=<Sequential"),
        ({}, {"model": "of images"}, "`model` must have token ids as source. Received: a model with `source`"),
        ({}, {"model": 280}, "`model` must have the vocabularies of the tokenizers, (300, 300) (source, target). Rec"),
        ({"precision": "mixed_bfloat16"}, {"model": 300}, "`recipe.precision` must be the dtype policy of `model`, f"),
        (
            {"model": ModelConfig(d_ff=13)},
            {"model": 300},
            "`init_from` and options of `model` must not be given with",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_before_work(config, recipe, given, message):
    run = config("run", recipe.get("model", DEFAULT), **{k: v for k, v in recipe.items() if k != "model"})
    if isinstance(given.get("model"), int):
        given = {"model": make_model(given["model"])}
    if given.get("model") == "of images":
        source = keras.Sequential([keras.Input((14, 7, 3)), kt.layers.PatchEmbedding(7, 12)])
        sizes = {"vocab_size": 300, "num_layers": 1, "d_model": 12, "num_heads": 2, "d_ff": 13}
        given = {"model": kt.Transformer(kt.TransformerConfig(**sizes), source=source)}
    with pytest.raises(ValueError, match=re.escape(message)):
        train(run, **given)
    assert not ModelDirectory(run.output).path.exists()


def test_a_model_of_mixed_precision_is_finished_in_float32():
    model = rebuilt(make_model(dtype="mixed_bfloat16"), dtype="float32")
    assert {layer.compute_dtype for layer in model._flatten_layers()} == {"float32"}


def test_a_loss_has_one_value_per_token():
    with pytest.raises(ValueError, match=r"`loss` must have one value per token: .*Received: values of shape \(\)"):
        Given(loss=sum_of_tokens).check_loss_values(7)
    Given(loss=squared_cross_entropy).check_loss_values(7)


def test_the_vocabulary_of_a_text_must_be_given_and_fit(toy_files, tmp_path):
    text = {"source": str(toy_files / "train.en"), "target": str(toy_files / "train.de")}
    for size, separate, message in (
        (None, False, "`tokenizer.vocab_size` must be given with `model`. Received: vocab_size=None"),
        (
            301,
            False,
            "`model` must have the vocabularies of the tokenizers, (301, 301) (source, target). Received: (3",
        ),
        (300, True, "`share_embeddings` of `model` must be False with two tokenizers. Received: share_embeddings=True"),
    ):
        tokenizer = kt.text.TokenizerConfig(vocab_size=size, shared=not separate)
        with pytest.raises(ValueError, match=re.escape(message)):
            train(TrainConfig(output=str(tmp_path / "run"), **text, tokenizer=tokenizer), model=make_model())
    ids = kt.Transformer(kt.TransformerConfig(vocab_size=300, **SIZES, bos_id=1))
    with pytest.raises(ValueError, match=r"must be those of the tokenizers, \(0, 2, 3\)\. Received: \(0, 1, 3\)"):
        train(TrainConfig(output=str(tmp_path / "run"), **text, tokenizer=tokenizer), model=ids)
    assert not (tmp_path / "run").exists()
