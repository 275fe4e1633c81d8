"""One training run: text in, model directory out."""

import sys
from pathlib import Path

import keras
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.tokenization import Tokenizer
from keras_transformer.training.batches import BATCHINGS
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.datasets import load_corpus
from keras_transformer.training.devices import make_strategy
from keras_transformer.training.fit import Run, fit, learning_rate
from keras_transformer.training.pipeline import filtered
from keras_transformer.training.tokenizer import PairTokenizer, train_tokenizers
from keras_transformer.training.validation_bleu import ValidationBleu


def train(config: TrainConfig) -> ModelDirectory:
    """Trains a model, or goes on with an unfinished run of the same configuration.

    Args:
        config: the run.

    Returns:
        The finished model directory.

    Raises:
        ValueError: if the data, the directory or the options cannot be used; nothing is left behind.
        Interrupted: if the process was told to stop; a checkpoint is saved.
        Diverged: if the loss is no number or has run away.
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
        learning_rate(config.recipe, transformer_config.d_model, run.total)  # Refused before anything is written.
        if not resuming:
            directory.clear()
            directory.write_tokenizers(models)
            directory.write_record({**config.record(), "batches": run.batches.shapes}, finished=False)
        elif directory.record()["batches"] != run.batches.shapes:
            raise ValueError("The run was begun with other data: its batches had other sizes")
        fit(config, directory, run, transformer_config, strategy)
    return directory


def _tokenizers(config, directory, corpus, resuming):
    existing = directory if resuming else ModelDirectory(config.init_from) if config.init_from else None
    if existing is None:
        return train_tokenizers(corpus.train, config.tokenizer)
    if not resuming:
        existing.require_finished()
    return tuple(Tokenizer(path).model for path in dict.fromkeys(existing.tokenizer_files))


def _prepare(config, corpus, models, replicas) -> Run:
    tokenizer = PairTokenizer(models)
    train, statistics = filtered(tokenizer(corpus.train), config)
    validation, validation_statistics = filtered(tokenizer(corpus.validation), config)
    _say(f"training: {statistics}", f"validation: {validation_statistics}")
    parts = config.parts(replicas)
    make_batches = BATCHINGS[config.batching]
    batches = make_batches(train, statistics, config, multiple=replicas * parts)
    validation_batches = make_batches(validation, validation_statistics, config, multiple=replicas)
    shapes = ", ".join(f"{rows} x {length}" for length, rows in zip(*batches.shapes.values(), strict=True))
    passes = f", each in {parts} passes on {replicas} device{'s' if replicas > 1 else ''}" if parts > 1 else ""
    _say(f"batches: {shapes}{passes}; {batches.padding:.0%} of the target is padding")
    sentences = config.recipe.bleu_sentences
    return Run(
        tokenizer,
        batches,
        # Of known size: Keras warns of data that end unannounced.
        validation_batches.validation().apply(tf.data.experimental.assert_cardinality(validation_batches.steps)),
        statistics,
        min(config.recipe.epochs * batches.steps, config.recipe.max_steps or sys.maxsize),
        ValidationBleu(tuple(map(Tokenizer, models)), corpus.validation, sentences) if sentences else None,
        parts,
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


def _say(*lines):
    for line in lines:
        print(line, file=sys.stderr)
