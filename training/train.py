"""One training run: text in, model directory out."""

import contextlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import keras

from keras_transformer.atomic_files import delete
from keras_transformer.config import TransformerConfig
from keras_transformer.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.run_records import differences
from keras_transformer.tokenization import Tokenizer
from keras_transformer.training.backends import make_devices
from keras_transformer.training.batches import make_batches
from keras_transformer.training.checkpoints import CheckpointFiles
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.datasets import load_corpus
from keras_transformer.training.fit import Run, fit
from keras_transformer.training.learning_rate import describe, learning_rate
from keras_transformer.training.operations import work_of
from keras_transformer.training.preflight import check_run
from keras_transformer.training.prepare import data_options, finished_tokenizers, write_tokens
from keras_transformer.training.token_directory import SPLITS, TokenDirectory
from keras_transformer.training.tokenizer import train_tokenizers
from keras_transformer.training.validation_bleu import ValidationBleu


def train(config: TrainConfig) -> ModelDirectory:
    """Trains a model, or resumes the run of the same configuration.

    Some options, such as the number of epochs, may change when a run is resumed; a finished run goes on if they do.

    Args:
        config: the run.

    Returns:
        The finished model directory.

    Raises:
        ValueError: if the data, the directory or the options cannot be used; nothing is left behind.
        Interrupted: if the process was told to stop; a checkpoint is saved.
        Diverged: if the loss is no number or has run away.
        WorkerLost: if another worker ends before its time.
    """
    check_run(config)
    directory = ModelDirectory(config.output)
    devices = make_devices(config.devices)
    devices.require_possible(config.recipe)
    keras.utils.set_random_seed(config.recipe.seed)
    with devices.watching(), directory.locked() if devices.is_chief else contextlib.nullcontext():
        begun = _begin(config, directory, devices) if devices.is_chief else None
        devices.any_worker(False)  # The others wait until the run is begun.
        fit(config, directory, *(begun or _begin(config, directory, devices)), devices)
    return directory


def _begin(config, directory, devices) -> tuple[Run, TransformerConfig]:
    """The data and the model of a run; the chief makes a new run's directory."""
    resuming = config.is_begun(directory, config.overwrite and devices.is_chief)
    if not (resuming or devices.is_chief):
        raise ValueError(f"`output` must lie where all workers see it. Received: output={config.output}")
    with directory.marked() if devices.is_chief else contextlib.nullcontext():
        return _prepare_run(config, directory, resuming, devices)


def _prepare_run(config, directory, resuming, devices):
    with _tokens(config, directory, resuming) as tokens:
        built = _transformer_config(config, tokens)
        run = _run_on(config, tokens, built, devices)
        if devices.is_chief:
            _describe(tokens, run, devices.count)
        state = {
            "tokens_sha256": tokens.record()["sha256"],
            "batches": [shape._asdict() for shape in run.batches.shapes],
        }
        if resuming:
            _require_same(state, directory)
            _require_more_steps(config, run.total, directory)
        models = tokens.tokenizer_models()
    if not resuming:
        directory.clear()
        if config.tokens and Path(config.tokens).resolve() != directory.tokens.resolve():
            directory.delete_tokens()  # Those of the run that is overwritten.
        directory.write_tokenizers(models)
        state["run"] = uuid.uuid4().hex
    if devices.is_chief:
        directory.write_record({**(directory.record() if resuming else {}), **config.record(), **state}, finished=False)
    return run, built


def _require_same(state, directory):
    """Checks that the data of a resumed run are those that it was begun with."""
    found = directory.record()
    if found["finished"] and not state.keys() <= found.keys():
        raise ModelDirectoryError(
            f"{directory.path} holds a finished model whose record lacks its training data, so it cannot be continued; "
            f"--overwrite replaces it, --init_from {directory.path} with another --output fine-tunes it"
        )
    if state != {name: found.get(name) for name in state}:
        raise ModelDirectoryError(f"{directory.path} holds a run that was begun with other tokens or batches")


def _require_more_steps(config, total, directory):
    """Checks that a run whose options have changed does not end before the step that it has reached."""
    found = directory.record()
    if not (found["finished"] or differences(config.record(), {name: found.get(name) for name in config.record()})):
        return
    reached = CheckpointFiles(directory.checkpoints, run=found.get("run")).last_whole().step
    if found["finished"] and not reached:
        raise ModelDirectoryError(
            f"{directory.path} holds a finished model without checkpoints, so it cannot be continued; "
            f"--overwrite replaces it, --init_from {directory.path} with another --output fine-tunes it"
        )
    if total < reached + found["finished"]:
        recipe = config.recipe
        raise ValueError(
            f"`recipe.epochs` and `recipe.max_steps` must allow {'more than' if found['finished'] else 'at least'} the "
            f"{reached} steps that {directory.path} has reached. "
            f"Received: epochs={recipe.epochs}, max_steps={recipe.max_steps}, which are {total} steps"
        )


@contextlib.contextmanager
def _tokens(config, directory, resuming) -> Iterator[TokenDirectory]:
    """The tokens that are given, or lie there; or new ones, which take their place when the block ends well."""
    if config.tokens:
        tokens = TokenDirectory(config.tokens)
        config.require_room(tokens.record()["data"]["max_length"])
        yield tokens
        return
    tokens = TokenDirectory(directory.tokens)
    if resuming and _are_whole(tokens, config):
        yield tokens
        return
    corpus = load_corpus(config)
    models = directory.tokenizer_models() if resuming else None
    if config.init_from and not resuming:
        models = finished_tokenizers(config.init_from)
    if tokens.path.is_symlink():
        delete(tokens.path)
    with tokens.replacing() as temporary:
        write_tokens(temporary, corpus, models or train_tokenizers(corpus.train, config.tokenizer), config)
        yield temporary


def _are_whole(tokens, config):
    """Whether a run's own tokens can be used again; what is damaged is made anew."""
    try:
        for split in SPLITS:
            tokens.sides(split)
        return tokens.record()["data"] == data_options(config)
    except ValueError:
        return False


def _run_on(config, tokens, built, devices) -> Run:
    parts = config.parts(devices.count)
    batches = make_batches(*tokens.sides("train"), config, multiple=devices.count * parts)
    sentences = config.recipe.bleu_sentences
    tokenizers = tuple(map(Tokenizer, tokens.tokenizer_models()))
    total = config.recipe.total_steps(batches.steps, is_fine_tuning=bool(config.init_from))
    return Run(
        batches,
        make_batches(*tokens.sides("validation"), config, multiple=devices.count),
        work_of(batches, built, config.recipe.precision, devices),
        total,
        learning_rate(config.recipe, built.d_model, total, is_fine_tuning=bool(config.init_from)),
        ValidationBleu(tokenizers, *tokens.validation_lines(sentences)) if sentences else None,
        parts,
    )


def _describe(tokens, run, replicas):
    def size(batches, shape):
        filled = batches.filled(shape).rows
        more = f", filled up to {filled} rows" if filled > shape.rows else ""
        return f"{shape.rows} x ({shape.source} + {shape.target}){more}"

    def sizes(batches):
        return ", ".join(size(batches, shape) for shape in batches.shapes)

    plural = "s" if replicas > 1 else ""
    passes = f", each in {run.parts} passes on {replicas} device{plural}" if run.parts > 1 else ""
    print(
        f"training: {tokens.statistics('train')}",
        f"validation: {tokens.statistics('validation')}",
        f"batches: {sizes(run.batches)}{passes}; {run.batches.padding:.0%} of the target is padding",
        f"batches of the validation: {sizes(run.validation)}",
        f"a step on average: {run.work}",
        f"learning rate: {describe(run.learning_rate)}; {run.total:,} steps in all",
        sep="\n",
        file=sys.stderr,
    )


def _transformer_config(config, tokens) -> TransformerConfig:
    models, max_length = tokens.tokenizer_models(), tokens.record()["data"]["max_length"]
    if config.init_from and models != finished_tokenizers(config.init_from):
        raise ValueError(f"The tokens of the run must be made with the tokenizer of `init_from`: {config.init_from}")
    built = _from_directory(config.init_from) if config.init_from else _from_tokenizers(config.model, models)
    if built.max_length is not None and built.max_length < max_length:
        raise ValueError(
            f"`model.max_length` must be at least `max_length`, the longest side of a pair. "
            f"Received: model.max_length={built.max_length}, max_length={max_length}"
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
