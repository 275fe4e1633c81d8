"""One training run, from text to model directory."""

import contextlib
import dataclasses
import functools
import operator
import sys
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.counting import counted
from keras_transformer.storage.atomic_files import delete
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.run_records import differences
from keras_transformer.storage.source_text import ENTRY, SourceText
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.backends import make_devices
from keras_transformer.training.checkpoints import CheckpointFiles
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data.batches import make_batches
from keras_transformer.training.data.prepare import (
    data_options,
    finished_tokenizers,
    train_own_tokenizers,
    write_tokens,
)
from keras_transformer.training.data.stream import make_stream
from keras_transformer.training.datasets import load_corpus
from keras_transformer.training.fit import fit
from keras_transformer.training.flops import step_cost
from keras_transformer.training.learning_rate import describe, learning_rate
from keras_transformer.training.plan import TrainingPlan
from keras_transformer.training.validation_bleu import ValidationBleu


def run(config: TrainConfig) -> ModelDirectory:
    """Runs a training that `start.check_run` has accepted; see `keras_transformer.training.start.train`."""
    directory = ModelDirectory(config.output)
    devices = make_devices(config.devices)
    devices.check_recipe(config.recipe)
    keras.utils.set_random_seed(config.recipe.seed)
    with devices.detect_worker_failure():
        if devices.is_chief:
            with directory.locked():
                plan = _start_run(config, directory, devices)
                devices.any_worker(False)  # A barrier: the other workers wait until the directory is ready.
                fit(config, directory, plan, devices)
        else:
            devices.any_worker(False)
            fit(config, directory, _join_run(config, directory, devices), devices)
    return directory


def _start_run(config, directory, devices) -> TrainingPlan:
    """Prepares the directory of a new run, or checks that of a resumed one."""
    resuming = config.check_resumable(directory, config.overwrite)  # Again: another process may have written since.
    with directory.claimed():
        with _tokens(config, directory, resuming) as tokens:
            plan = _make_plan(config, tokens, directory, devices)
            _describe(tokens, plan, devices, config.recipe)
            state, languages = (
                _data_fingerprint(tokens, plan),
                _languages(config, tokens, directory if resuming else None),
            )
            source_text = _source_text(config, tokens)
            if resuming:
                _require_same(state, directory)
                _require_more_steps(config, plan.total, directory)
        if not resuming:
            directory.clear()
            if config.prepared and Path(config.prepared).resolve() != directory.tokens.resolve():
                directory.delete_tokens()  # They belong to the overwritten run.
            if not directory.replaces_model:
                directory.write_tokenizers(tuple(tokenizer.model for tokenizer in plan.tokenizers))
            state["run"] = uuid.uuid4().hex
        record = {**directory.record(), **config.record(), **state, "languages": languages, **source_text}
        directory.write_record(record, finished=False)
    return plan


def _join_run(config, directory, devices) -> TrainingPlan:
    """The plan of the run that the chief has started, for the other workers."""
    if not config.check_resumable(directory, overwrite=False):
        raise ValueError(f"`output` must be on a disk that all workers share. Received: output={config.output}")
    with _tokens(config, directory, resuming=True) as tokens:
        plan = _make_plan(config, tokens, directory, devices)
        _require_same(_data_fingerprint(tokens, plan), directory)
    return plan


def _data_fingerprint(tokens, plan) -> dict:
    """The part of the record that does not come from the options."""
    batches = [shape._asdict() for shape in plan.batches.shapes]
    return {"tokens_sha256": tokens.record()["sha256"], "batches": batches}


def _languages(config, tokens, resumed) -> list[str | None]:
    """The languages in the options, in the record of the resumed run, of the tokens, or of the model to fine-tune."""
    known = [(config.source_language, config.target_language), tokens.languages]
    if resumed:
        known.insert(1, resumed.record().get("languages") or (None, None))
    if config.init_from:
        known.append(ModelDirectory(config.init_from).languages)
    return [next(filter(None, codes), None) for codes in zip(*known, strict=True)]


def _source_text(config, tokens) -> dict:
    """The entry of the record on the source text, with that of the model to fine-tune. Old tokens have none."""
    records = [tokens.record(), *([ModelDirectory(config.init_from).record()] if config.init_from else [])]
    if not any(ENTRY in record for record in records):
        return {}
    text = functools.reduce(operator.add, map(SourceText.from_record, records))
    # Which signs a model knows is unknown if it was trained on a text whose signs are.
    is_complete = all(ENTRY in record for record in records)
    return {ENTRY: dataclasses.replace(text, signs=text.signs if is_complete else None).to_record()}


def _require_same(state, directory):
    """Checks that the data of a resumed run have not changed."""
    found = directory.record()
    if found["finished"] and not state.keys() <= found.keys():
        raise ModelDirectoryError(
            f"{directory.path} cannot be resumed: its record lacks the training data. Use --overwrite to replace the "
            f"model, or --init_from {directory.path} with another --output to fine-tune it"
        )
    if state != {name: found.get(name) for name in state}:
        raise ModelDirectoryError(
            f"{directory.path} cannot be resumed: its run was started with other tokens or batches. "
            "Use --overwrite to start over"
        )


def _require_more_steps(config, total, directory):
    """Checks that a run with changed options does not end before the step that it has reached."""
    found = directory.record()
    if not (found["finished"] or differences(config.record(), {name: found.get(name) for name in config.record()})):
        return
    reached = CheckpointFiles(directory.checkpoints, run=found.get("run")).latest_valid().step
    if found["finished"] and not reached:
        raise ModelDirectoryError(
            f"{directory.path} cannot be resumed: it has no checkpoints. Use --overwrite to replace the model, "
            f"or --init_from {directory.path} with another --output to fine-tune it"
        )
    if total < reached + found["finished"]:
        recipe = config.recipe
        raise ValueError(
            f"`recipe.epochs` and `recipe.max_steps` must give {'more than' if found['finished'] else 'at least'} the "
            f"{counted(reached, 'step')} that {directory.path} has reached. "
            f"Received: epochs={recipe.epochs}, max_steps={recipe.max_steps}, which give {counted(total, 'step')}"
        )


@contextlib.contextmanager
def _tokens(config, directory, resuming) -> Iterator[TokenDirectory]:
    """The tokens of the run: `prepared`, those in the directory, or new ones, which are kept if the block succeeds."""
    if config.prepared:
        tokens = TokenDirectory(config.prepared)
        config.require_room(tokens.record()["data"]["max_length"])
        yield tokens
        return
    tokens = TokenDirectory(directory.tokens)
    if resuming and _are_valid(tokens, config):
        yield tokens
        return
    corpus = load_corpus(config)
    models = None
    if resuming and not directory.replaces_model:
        models = directory.tokenizer_models()
    elif config.init_from:
        models = finished_tokenizers(config.init_from)
    if tokens.path.is_symlink():
        delete(tokens.path)
    with tokens.atomic_write() as temporary:
        models = models or train_own_tokenizers(corpus, config, config.augmentation)
        write_tokens(temporary, corpus, models, config)
        yield temporary


def _are_valid(tokens, config):
    """Whether a resumed run can reuse its tokens. Damaged tokens are written again."""
    try:
        for split in tokens.splits:
            tokens.sides(split)
        return tokens.record()["data"] == data_options(config)
    except ValueError:
        return False


def _make_plan(config, tokens, directory, devices) -> TrainingPlan:
    tokenizers = tuple(map(Tokenizer, tokens.tokenizer_models()))
    model_config = _model_config(config, tokenizers, tokens.record()["data"]["max_length"])
    accumulation_steps = config.accumulation_steps(devices.count)
    multiple = devices.count * accumulation_steps
    if config.augmentation.is_used or tokens.train_splits != ["train"]:
        path = config.prepared or directory.tokens
        batches = make_stream(tokens, config, multiple, path, model_config.max_length)
    else:
        batches = make_batches(*tokens.sides("train"), config, multiple)
    sentences = config.recipe.bleu_sentences
    total = config.recipe.total_steps(batches.steps, is_fine_tuning=bool(config.init_from))
    return TrainingPlan(
        model_config,
        tokenizers,
        batches,
        make_batches(*tokens.sides("validation"), config, multiple=devices.count),
        step_cost(batches, model_config, config.recipe, devices),
        total,
        learning_rate(config.recipe, model_config.d_model, total, is_fine_tuning=bool(config.init_from)),
        ValidationBleu(tokenizers, *tokens.validation_lines(sentences)) if sentences else None,
        accumulation_steps,
    )


def _describe(tokens, plan, devices, recipe):
    def size(batches, shape):
        filled = batches.filled(shape).rows
        more = f" (padded to {counted(filled, 'row')})" if filled > shape.rows else ""
        return f"{counted(shape.rows, 'row')} of {shape.source} source and {shape.target} target tokens{more}"

    def sizes(batches):
        return ", ".join(size(batches, shape) for shape in batches.shapes)

    steps = plan.accumulation_steps
    accumulation = f"; gradients accumulated over {steps} micro-batches" if steps > 1 else ""
    is_short = recipe.max_steps is not None and plan.total < recipe.round_to_execution(recipe.max_steps)
    why = f", the end of `recipe.epochs`, before `recipe.max_steps`={recipe.max_steps:,}" if is_short else ""
    stages = list(enumerate(plan.batches.stage_starts, 1))
    for split in tokens.train_splits:
        name = split.partition(".")[2]
        print(f"training pairs{name and f' of {name}'}: {tokens.statistics(split)}", file=sys.stderr)
    print(
        f"validation pairs: {tokens.statistics('validation')}",
        f"training batches: {sizes(plan.batches)}; {plan.batches.padding:.0%} padding{accumulation}",
        f"validation batches: {sizes(plan.validation)}",
        f"average training step: {plan.cost}",
        f"devices: {devices.count} x {devices.kind}",
        f"learning rate: {describe(plan.learning_rate)}",
        f"training steps: {plan.total:,}{why}",
        *(f"stage {number} starts after about {counted(start, 'step')}" for number, start in stages[1:]),
        sep="\n",
        file=sys.stderr,
    )
    unreached = [str(number) for number, start in stages if start >= plan.total]
    if unreached:
        warnings.warn(
            f"The training ends after {counted(plan.total, 'step')}, before stage {', '.join(unreached)} of `stages` "
            "starts. Give the stages before it fewer `epochs`, or train for more steps",
            stacklevel=2,
        )


def _model_config(config, tokenizers, max_length) -> TransformerConfig:
    if config.init_from:
        model_config = _from_directory(config.init_from, tokenizers)
    else:
        model_config = _from_tokenizers(config.model, tokenizers)
    if model_config.max_length is not None and model_config.max_length < max_length:
        raise ValueError(
            f"`model.max_length` must be at least `max_length`, the maximum length of a pair. "
            f"Received: model.max_length={model_config.max_length}, max_length={max_length}"
        )
    return model_config


def _from_directory(path, tokenizers) -> TransformerConfig:
    directory = ModelDirectory(path)
    if tuple(tokenizer.model for tokenizer in tokenizers) != directory.tokenizer_models():
        raise ValueError(
            f"The tokenizer of the prepared tokens must be that of `init_from`. Received: init_from={str(path)!r}"
        )
    return TransformerConfig(**directory.record()["model_config"])


def _from_tokenizers(model, tokenizers) -> TransformerConfig:
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    vocabulary = {"vocab_size": sizes[-1], "share_embeddings": len(sizes) == 1}
    if len(sizes) == 2:
        vocabulary["source_vocab_size"] = sizes[0]
    return model.transformer(**vocabulary)
