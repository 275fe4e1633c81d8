"""Keras `fit`, from the latest checkpoint to the last step."""

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import NamedTuple

import keras

from keras_transformer.losses import LabelSmoothedCrossEntropy, RDropCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenLoss
from keras_transformer.models import Transformer
from keras_transformer.optimizers import Adam, inner_adam
from keras_transformer.saving import load_model
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.averaging import AverageInValidations
from keras_transformer.training.backends.devices import Devices
from keras_transformer.training.callbacks import Callbacks, Checkpoints, Divergence
from keras_transformer.training.checkpoints import CheckpointFiles, TrainingState, restore_random, seed_generators
from keras_transformer.training.given import Given, copied, rebuilt
from keras_transformer.training.plan import TrainingPlan
from keras_transformer.training.progress import Progress
from keras_transformer.training.scalars import Scalars
from keras_transformer.training.stopping import StopRequest

#: A batch has diverged if its loss exceeds this multiple of the loss of a uniform prediction, log(vocab_size).
_RUNAWAY = 10.0
#: Largest number of TensorBoard values of a run, about. Each waits for the device.
_SCALARS = 1000
#: Smallest number of updates between TensorBoard values.
_SCALARS_EVERY = 10


def fit(config, directory: ModelDirectory, plan: TrainingPlan, devices: Devices, given: Given) -> TrainingState:
    """Trains from the latest valid checkpoint, or from the start. Returns the state at the end, which is saved.

    Raises:
        Interrupted: if a signal stopped the process. A checkpoint is saved.
        Diverged: if the loss or a weight is NaN, infinite or too large.
        WorkerLost: if another worker stops.
        WorkerStopped: if a process that prepares data has stopped.
        ValueError: if no checkpoint is valid, or one belongs to another run.
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
    model = _prepare_model(config, directory, plan, devices, files, state, given)
    plan.batches.resume(state.position)
    every = recipe.round_to_execution(recipe.validate_every or plan.batches.steps)
    limit = _RUNAWAY * math.log(plan.model_config.vocab_size) if given.loss is None else sys.float_info.max
    divergence = Divergence(files, state, plan.batches.steps, limit, recipe.steps_per_execution)
    with files.noting_last(), contextlib.ExitStack() as stack:
        stack.callback(plan.batches.close)
        request = stack.enter_context(StopRequest())
        checkpoints = Checkpoints(directory, files, state, recipe, every, plan, divergence, request, devices)
        # In this order: BLEU and the given callbacks must see the moving average at the end of a validation, and
        # `checkpoints` records BLEU and saves what the given callbacks change.
        validating = [plan.bleu] if plan.bleu else []
        validating += given.callbacks
        validating += [AverageInValidations()] if recipe.moving_average else []
        showing = _progress_callbacks(stack, directory, plan, state, recipe, devices) if devices.is_chief else []
        callbacks = Callbacks([*validating, divergence, checkpoints, *showing], model, given.callbacks)
        for call in _fit_calls(state.step, plan.total, every):
            if state.validations and checkpoints.should_stop:
                break
            _call_fit(model, call, plan, devices, recipe.seed, callbacks)
            if model.stop_training:
                break
        callbacks.end()
    if devices.is_chief and (sources := plan.batches.sources(state.step)):
        print(f"pairs trained on: {sources}", file=sys.stderr)
    return state


def _prepare_model(config, directory, plan, devices, files, state, given):
    """The model of a checkpoint, or a new one."""
    recipe = config.recipe
    with devices.scope(), _remat(recipe, plan.model_config):
        model = load_model(files.path(state.step)) if state.step else _compiled(config, plan, given)
    devices.set_steps(model, plan.accumulation_steps)
    model.jit_compile = devices.jit_compile(recipe.xla)
    seeds = [((1000 * recipe.seed + i) % 2**32, 0) for i in range(len(seed_generators(model)))]  # 32 bits, as in JAX.
    restore_random(model, state.random or seeds)
    devices.offset_replica_seeds(model)
    if not devices.all_equal(state.step):
        raise ValueError(
            f"All workers must read the same checkpoints. {directory.path} must be on a shared disk. "
            f"Received: worker {devices.worker} would resume from step {state.step}"
        )
    if state.step and devices.is_chief:
        _print_resuming(model, plan, files.path(state.step), state.step)
    return model


def _remat(recipe, model_config):
    """The scope in which a model is made whose encoder and decoder layers are recomputed; none without `remat`."""
    # One layer after another: of larger parts the gradient would need all activations at once.
    names = [f"layer_{i}" for i in range(max(model_config.depths))]
    return keras.RematScope("list_of_layers", layer_names=names) if recipe.remat else contextlib.nullcontext()


def _print_resuming(model, plan, checkpoint, step):
    print(f"Resuming from step {step} of {plan.total}: {checkpoint}", file=sys.stderr)
    schedule = inner_adam(model).get_config()["learning_rate"]["config"]
    if schedule != plan.learning_rate.get_config():  # Its defaults depend on the number of steps, which has changed.
        print("The learning rate keeps the schedule of the original run", file=sys.stderr)


def _progress_callbacks(stack, directory, plan, state, recipe, devices):
    step, left, every = state.step, recipe.seconds - state.seconds, max(_SCALARS_EVERY, plan.total // _SCALARS)
    progress = Progress(
        plan.total, step, plan.batches.steps, plan.cost.tokens, left, steps_per_execution=recipe.steps_per_execution
    )
    stack.enter_context(progress.bar)
    scalars = Scalars(directory.logs, step, every, plan.cost, devices, steps_per_execution=recipe.steps_per_execution)
    return [progress, scalars]


def _call_fit(model, call, plan, devices, seed, callbacks):
    callbacks.set_params({"verbose": 0, "epochs": call.last, "steps": call.steps})
    try:
        model.fit(
            devices.training_data(plan.batches, seed, call.start),
            initial_epoch=call.first,
            epochs=call.last,
            steps_per_epoch=call.steps,
            **devices.validation_data(plan.validation),
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )
    except Exception as error:
        if plan.batches.failure is not None:  # TensorFlow raises an error of its own instead.
            raise plan.batches.failure from error
        raise


def _compiled(config, plan, given):
    recipe = config.recipe
    if given.model is not None:
        model = rebuilt(given.model)
        model.set_weights(given.model.get_weights())
    else:
        model = Transformer(plan.model_config, dtype=recipe.precision)
    if config.init_from:
        model.set_weights(load_model(ModelDirectory(config.init_from).model_file, compile=False).get_weights())
    options = {"use_ema": True, "ema_momentum": recipe.moving_average} if recipe.moving_average else {}
    options |= {"weight_decay": recipe.weight_decay or None, "global_clipnorm": recipe.clip_norm}
    smoothing = recipe.label_smoothing
    loss = RDropCrossEntropy(recipe.r_drop, smoothing) if recipe.r_drop else LabelSmoothedCrossEntropy(smoothing)
    metrics = [TokenLoss(smoothing, name="loss", loss=given.loss), TokenAccuracy(), Perplexity()]
    model.compile(
        Adam(plan.learning_rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9, **options),
        loss=loss if given.loss is None else given.loss,
        r_drop=recipe.r_drop > 0,
        weighted_metrics=[*metrics, *map(copied, given.metrics)],
        steps_per_execution=recipe.steps_per_execution,
    )
    # Without this, the first step creates the optimizer's variables and TensorFlow traces it twice.
    model.optimizer.build(model.trainable_variables)
    return model


class _FitCall(NamedTuple):
    """One call of `fit`: its first step, its first and last Keras epoch, and the steps of an epoch.

    Each Keras epoch ends with a validation.
    """

    start: int
    first: int
    last: int
    steps: int


def _fit_calls(step: int, total: int, every: int) -> Iterator[_FitCall]:
    """The calls of `fit` from `step` to `total`: the rest of a started interval, full intervals, a shorter last one."""
    if step % every and step < total:
        end = min(step - step % every + every, total)
        yield _FitCall(step, step // every, step // every + 1, end - step)
        step = end
    full = (total - step) // every
    if full > 0:
        yield _FitCall(step, step // every, step // every + full, every)
        step += full * every
    if step < total:
        yield _FitCall(step, step // every, step // every + 1, total - step)
