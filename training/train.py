"""One training run: text in, model directory out."""

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenLoss
from keras_transformer.model_directory import ModelDirectory, replacing
from keras_transformer.models import Transformer
from keras_transformer.saving import load_model
from keras_transformer.schedules import WarmupInverseSqrt
from keras_transformer.tokenization import Tokenizer
from keras_transformer.training.callbacks import Checkpoints, Progress
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.datasets import load_corpus
from keras_transformer.training.devices import make_strategy
from keras_transformer.training.pipeline import Buckets, Statistics, filtered, training_batches, validation_batches
from keras_transformer.training.tokenizer import PairTokenizer, train_tokenizers
from keras_transformer.translation import load_tokenizers


def train(config: TrainConfig) -> ModelDirectory:
    """Trains a model, or goes on with an unfinished run of the same configuration.

    Args:
        config: the run.

    Returns:
        The finished model directory.

    Raises:
        ValueError: if the data, the directory or the options cannot be used; nothing is left behind.
    """
    directory = ModelDirectory(config.output)
    if config.init_from and directory.path.resolve() == Path(config.init_from).resolve():
        raise ValueError(f"`output` must be another directory than `init_from`. Received: {config.output}")
    directory.is_begun(config.record(), config.overwrite)
    strategy = make_strategy(config.devices)
    # Before any tokenizer is made: seeding clears TensorFlow's kernels, and the tokenizers with them.
    keras.utils.set_random_seed(config.recipe.seed)
    corpus = load_corpus(config)
    with directory.locked():
        resuming = directory.is_begun(config.record(), config.overwrite)
        models = _tokenizers(config, directory, corpus, resuming)
        transformer_config = _transformer_config(config, models)
        run = _prepare(config, corpus, models, strategy.num_replicas_in_sync)
        if not resuming:
            directory.clear()
            directory.write_tokenizers(models)
            directory.write_record({**config.record(), "batches": run.buckets.record()}, finished=False)
        elif directory.record()["batches"] != run.buckets.record():
            raise ValueError("The run was begun with batches of other sizes; resume it on as many devices")
        _fit(config, directory, run, transformer_config, strategy)
    return directory


class _Run(NamedTuple):
    """The data of a run, ready for `fit`."""

    tokenizer: PairTokenizer  # Held because the datasets need it alive.
    train: tf.data.Dataset
    validation: tf.data.Dataset
    statistics: Statistics
    buckets: Buckets
    steps_per_epoch: int


def _tokenizers(config, directory, corpus, resuming):
    existing = directory if resuming else ModelDirectory(config.init_from) if config.init_from else None
    if existing is None:
        return train_tokenizers(corpus.train, config.tokenizer)
    if not resuming:
        existing.require_finished()
    return tuple(Tokenizer(path).model for path in dict.fromkeys(existing.tokenizer_files))


def _prepare(config, corpus, models, replicas) -> _Run:
    tokenizer = PairTokenizer(models)
    train, statistics = filtered(tokenizer(corpus.train), config)
    validation, validation_statistics = filtered(tokenizer(corpus.validation), config)
    _say(f"training: {statistics}", f"validation: {validation_statistics}")
    sizes = (config.num_buckets, config.tokens_per_batch, replicas)
    buckets = Buckets.fit(statistics.histogram, *sizes)
    validation_buckets = Buckets.fit(validation_statistics.histogram, *sizes)
    shapes = ", ".join(f"{rows} x {length}" for rows, length in zip(buckets.rows, buckets.lengths, strict=True))
    _say(f"batches: {shapes}")
    return _Run(
        tokenizer,
        train,
        # Of known size: Keras warns of data that end unannounced.
        validation_batches(validation, validation_buckets).apply(
            tf.data.experimental.assert_cardinality(validation_buckets.steps(validation_statistics.histogram))
        ),
        statistics,
        buckets,
        buckets.steps(statistics.histogram),
    )


def _transformer_config(config, models) -> TransformerConfig:
    built = _from_directory(config.init_from) if config.init_from else _from_tokenizers(config.model, models)
    if built.max_length is not None and built.max_length < config.max_length:
        raise ValueError(
            f"`model.max_length` must be at least `max_length`, the longest side of a pair. "
            f"Received: model.max_length={built.max_length}, max_length={config.max_length}"
        )
    return built


def _from_directory(path) -> TransformerConfig:
    return TransformerConfig(**ModelDirectory(path).record()["model_as_built"])


def _from_tokenizers(model, models) -> TransformerConfig:
    sizes = [Tokenizer(model).vocab_size for model in models]
    vocabulary = {"vocab_size": sizes[-1], "share_embeddings": len(sizes) == 1}
    if len(sizes) == 2:
        vocabulary["source_vocab_size"] = sizes[0]
    return model.transformer(**vocabulary)


def _fit(config, directory, run, transformer_config, strategy):
    recipe = config.recipe
    checkpoints = Checkpoints(directory, recipe.checkpoint_every, recipe.patience)
    step = checkpoints.resume()
    with strategy.scope():
        model = load_model(checkpoints.last) if step else _compiled(config, transformer_config)
    model.jit_compile = strategy.num_replicas_in_sync == 1 if recipe.xla is None else recipe.xla
    _seed_dropout(model, recipe.seed, step)
    total = min(recipe.epochs * run.steps_per_epoch, recipe.max_steps or sys.maxsize)
    progress = Progress(total, step, run.statistics.target_tokens / run.steps_per_epoch)
    callbacks = [checkpoints, progress, keras.callbacks.TensorBoard(directory.logs, write_graph=False)]
    for part in _parts(step, total, recipe.validate_every or run.steps_per_epoch):
        if checkpoints.should_stop:
            break
        epoch, done = divmod(part.start, run.steps_per_epoch)
        model.fit(
            training_batches(run.train, run.buckets, recipe.seed, epoch).skip(done),
            initial_epoch=part.first,
            epochs=part.last,
            steps_per_epoch=part.steps,
            validation_data=run.validation,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )
    progress.bar.close()
    _finish(config, directory, transformer_config, checkpoints)


def _compiled(config, transformer_config):
    recipe = config.recipe
    model = Transformer(transformer_config, dtype=recipe.precision)
    if config.init_from:
        model.set_weights(load_model(ModelDirectory(config.init_from).model_file).get_weights())
    schedule = WarmupInverseSqrt(transformer_config.d_model, recipe.warmup_steps, recipe.peak_learning_rate)
    model.compile(
        keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        loss=LabelSmoothedCrossEntropy(recipe.label_smoothing),
        weighted_metrics=[TokenLoss(recipe.label_smoothing, name="loss"), TokenAccuracy(), Perplexity()],
    )
    return model


def _seed_dropout(model, seed, step):
    """Puts the dropout where an unbroken run's would be: its state is in no checkpoint of Keras.

    The state is a seed and a count of draws, of which a layer makes one a step.
    """
    states = [variable for variable in model.variables if variable.name == "seed_generator_state"]
    for i, state in enumerate(states):
        state.assign([1000 * seed + i, step])


class _Part(NamedTuple):
    """One call of `fit`: its first step, and its Keras epochs of `steps` steps, each ending in a validation."""

    start: int
    first: int
    last: int
    steps: int


def _parts(step: int, total: int, every: int) -> Iterator[_Part]:
    """The calls of `fit` from `step` to `total`: what is left of an interval, whole intervals, the rest."""
    if step % every and step < total:
        end = min(step - step % every + every, total)
        yield _Part(step, step // every, step // every + 1, end - step)
        step = end
    whole = (total - step) // every
    if whole > 0:
        yield _Part(step, step // every, step // every + whole, every)
        step += whole * every
    if step < total:
        yield _Part(step, step // every, step // every + 1, total - step)


def _finish(config, directory, transformer_config, checkpoints):
    """Writes the model that translates: float32, without optimizer."""
    model = Transformer(transformer_config)
    if config.recipe.weights == "best":
        model.load_weights(checkpoints.best)
    else:
        model.set_weights(load_model(checkpoints.last, compile=False).get_weights())
    with replacing(directory.model_file) as temporary:
        model.save(temporary)
    record = {
        **config.record(),
        "model_as_built": dataclasses.asdict(transformer_config),
        "tokenizers_sha256": [tokenizer.sha256 for tokenizer in load_tokenizers(directory)],
    }
    directory.write_record(record, finished=True)


def _say(*lines):
    for line in lines:
        print(line, file=sys.stderr)
