"""The run of `fit`: compiled, in accumulation_steps that end in validations, from where the last checkpoint stands."""

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import NamedTuple

from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenLoss
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.models import Transformer
from keras_transformer.optimizers import Adam, adam_of
from keras_transformer.saving import load_model
from keras_transformer.training.averaging import AverageInValidations
from keras_transformer.training.backends.devices import Devices
from keras_transformer.training.callbacks import Checkpoints, Divergence, Progress
from keras_transformer.training.checkpoints import CheckpointFiles, restore_random, seed_generators
from keras_transformer.training.finish import finish
from keras_transformer.training.plan import TrainingPlan
from keras_transformer.training.scalars import Scalars
from keras_transformer.training.stopping import StopRequest

#: A batch whose loss is so many times that of guessing, log(vocabulary), has run away.
_RUNAWAY = 10.0
#: Updates between values in TensorBoard.
_SCALARS_EVERY = 10


def fit(config, directory: ModelDirectory, plan: TrainingPlan, devices: Devices):
    """Trains from the last whole checkpoint, or from the start, to the finished model.

    Args:
        config: the `TrainConfig`.
        directory: where checkpoints and model go.
        plan: what it trains.
        devices: what it runs on.

    Raises:
        Interrupted: if the process was told to stop; a checkpoint is saved.
        Diverged: if the loss is no number or has run away.
        WorkerLost: if another worker ends before its time.
        OSError: if a file cannot be written.
        ValueError: if there are checkpoints and none is whole, or one is another run's.
    """
    recipe = config.recipe
    files = CheckpointFiles(
        directory.checkpoints,
        recipe.round_to_execution(recipe.checkpoint_every),
        recipe.keep_checkpoints,
        recipe.best_by,
        run=directory.record().get("run"),
    )
    state = files.latest_valid()
    with devices.scope():
        model = load_model(files.path(state.step)) if state.step else _compiled(config, plan)
    devices.set_steps(model, plan.accumulation_steps)
    model.jit_compile = devices.jit_compile(recipe.xla)
    restore_random(model, state.random or _first_draws(recipe.seed, len(seed_generators(model))))
    devices.offset_replica_seeds(model)
    if not devices.all_equal(state.step):
        raise ValueError(
            f"All workers must see the same checkpoints: is {directory.path} on a disk that all share? "
            f"Worker {devices.worker} would go on from step {state.step}"
        )
    if state.step and devices.is_chief:
        _say_resuming(model, plan, files.path(state.step), state.step)
    every = recipe.round_to_execution(recipe.validate_every or plan.batches.steps)
    divergence = Divergence(files, state, plan.batches.steps, _RUNAWAY * math.log(plan.model_config.vocab_size))
    with files.naming_last(), contextlib.ExitStack() as stack:
        request = stack.enter_context(StopRequest())
        checkpoints = Checkpoints(directory, files, state, recipe, every, plan.total, divergence, request, devices)
        validating = [plan.bleu] if plan.bleu else []  # It sees the moving average, and its result is what is recorded.
        validating += [AverageInValidations()] if recipe.moving_average else []
        showing = _showing(stack, directory, plan, state, recipe, devices) if devices.is_chief else []
        callbacks = [*validating, divergence, checkpoints, *showing]
        for part in _parts(state.step, plan.total, every):
            if state.validations and checkpoints.should_stop:
                break
            _fit_part(model, part, plan, devices, recipe.seed, callbacks)
    if devices.is_chief:
        finish(config, directory, plan, files, state)


def _say_resuming(model, plan, checkpoint, step):
    print(f"Resuming from step {step} of {plan.total}: {checkpoint}", file=sys.stderr)
    begun = adam_of(model).get_config()["learning_rate"]["config"]
    if begun != plan.learning_rate.get_config():  # Another number of steps would have given other defaults.
        print("The learning rate keeps the schedule that the run began with", file=sys.stderr)


def _first_draws(seed, count):
    """The states of random draws at the start, in the 32 bits that JAX has for them."""
    return [((1000 * seed + i) % 2**32, 0) for i in range(count)]


def _showing(stack, directory, plan, state, recipe, devices):
    """What shows how the training goes."""
    progress = Progress(plan.total, state.step, plan.batches.steps, plan.cost.tokens, recipe.seconds - state.seconds)
    stack.enter_context(progress.bar)
    return [progress, Scalars(directory.logs, state.step, _SCALARS_EVERY, plan.cost, devices)]


def _fit_part(model, part, plan, devices, seed, callbacks):
    model.fit(
        devices.training_data(plan.batches, seed, part.start),
        initial_epoch=part.first,
        epochs=part.last,
        steps_per_epoch=part.steps,
        **devices.validation_data(plan.validation),
        callbacks=callbacks,
        shuffle=False,
        verbose=0,
    )


def _compiled(config, plan):
    recipe = config.recipe
    model = Transformer(plan.model_config, dtype=recipe.precision)
    if config.init_from:
        model.set_weights(load_model(ModelDirectory(config.init_from).model_file).get_weights())
    average = {"use_ema": True, "ema_momentum": recipe.moving_average} if recipe.moving_average else {}
    model.compile(
        Adam(plan.learning_rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9, **average),
        loss=LabelSmoothedCrossEntropy(recipe.label_smoothing),
        weighted_metrics=[TokenLoss(recipe.label_smoothing, name="loss"), TokenAccuracy(), Perplexity()],
        steps_per_execution=recipe.steps_per_execution,
    )
    # Made in the first step, the optimizer's variables would have TensorFlow trace it twice.
    model.optimizer.build(model.trainable_variables)
    return model


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
