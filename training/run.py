"""One training run, from text to model directory: check, plan, fit, finish."""

import contextlib
import dataclasses
import functools
import operator
import uuid
from pathlib import Path

import keras

from keras_transformer.layers import attention_implementation, set_attention_implementation
from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.source_text import ENTRY, SourceText
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.training.backends import make_devices
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data.run_tokens import run_tokens
from keras_transformer.training.finish import finish
from keras_transformer.training.fit import fit
from keras_transformer.training.given import Given
from keras_transformer.training.plan import TrainingPlan, make_plan, print_plan
from keras_transformer.training.resume import GIVEN, check_resumable


def run(config: TrainConfig, given: Given) -> ModelDirectory:
    """Runs a training that `start.check_run` has accepted; see `keras_transformer.training.start.train`."""
    directory = ModelDirectory(config.output)
    devices = make_devices(config.devices)
    devices.check_recipe(config.recipe)
    keras.utils.set_random_seed(config.recipe.seed)
    with devices.detect_worker_failure(), contextlib.ExitStack() as stack:
        stack.callback(set_attention_implementation, attention_implementation())
        set_attention_implementation(config.recipe.attention)
        if devices.is_chief:
            stack.enter_context(directory.locked())
            plan = _start_run(config, directory, devices, given)
        devices.any_worker(False)  # A barrier: the other workers wait until the directory is ready.
        if not devices.is_chief:
            plan = _join_run(config, directory, devices, given)
        state = fit(config, directory, plan, devices, given)
        if devices.is_chief:
            finish(config, directory, plan, state)
    return directory


def _start_run(config, directory, devices, given) -> TrainingPlan:
    """Prepares the directory of a new run, or checks that of a resumed one."""
    # Again: another process may have written since.
    resuming = check_resumable(config, directory, config.overwrite, given=given.record())
    with directory.claimed():
        with run_tokens(config, directory, resuming) as tokens:
            plan = make_plan(config, tokens, directory, devices, given)
            print_plan(plan, tokens, devices, config.recipe)
            texts = _languages(config, tokens, directory if resuming else None) | _source_text(config, tokens)
            if resuming:
                check_resumable(config, directory, plan=plan)
        if not resuming:
            _clear(config, directory, plan)
        run_id = {} if resuming else {"run": uuid.uuid4().hex}
        own = {GIVEN: found} if (found := given.record()) else {}
        record = {**directory.record(), **config.record(), **plan.data_fingerprint, **run_id, **texts, **own}
        directory.write_record(record, finished=False)
    return plan


def _clear(config, directory, plan):
    """Makes room for a new run."""
    directory.clear()
    if config.prepared and Path(config.prepared).resolve() != directory.tokens.resolve():
        TokenDirectory(directory.tokens).delete()  # They belong to the overwritten run.
    if not directory.replaces_model:
        directory.write_tokenizers(tuple(tokenizer.model for tokenizer in plan.tokenizers))


def _join_run(config, directory, devices, given) -> TrainingPlan:
    """The plan of the run that the chief has started, for the other workers."""
    if not check_resumable(config, directory, given=given.record()):
        raise ValueError(f"`output` must be on a disk that all workers share. Received: output={config.output}")
    with run_tokens(config, directory, resuming=True) as tokens:
        plan = make_plan(config, tokens, directory, devices, given)
        check_resumable(config, directory, plan=plan)
    return plan


def _languages(config, tokens, resumed) -> dict:
    """The entries of the record on languages.

    Those in the options, in the record of the resumed run, of the tokens, or of the model to fine-tune.
    """
    several = Languages.from_record(tokens.record())
    if several.are_several:
        before = resumed.languages if resumed else (None, None)
        given = config.source_language or before[0], config.target_language or before[1]
        return several.with_default(*given).to_record()
    known = [(config.source_language, config.target_language), tokens.languages]
    if resumed:
        known.insert(1, resumed.record().get("languages") or (None, None))
    if config.init_from:
        known.append(ModelDirectory(config.init_from).languages)
    return {"languages": [next(filter(None, codes), None) for codes in zip(*known, strict=True)]}


def _source_text(config, tokens) -> dict:
    """The entry of the record on the source text, with that of the model to fine-tune. Old tokens have none."""
    records = [tokens.record(), *([ModelDirectory(config.init_from).record()] if config.init_from else [])]
    if not any(ENTRY in record for record in records):
        return {}
    text = functools.reduce(operator.add, map(SourceText.from_record, records))
    # Which signs a model knows is unknown if it was trained on a text whose signs are.
    is_complete = all(ENTRY in record for record in records)
    return {ENTRY: dataclasses.replace(text, signs=text.signs if is_complete else None).to_record()}
