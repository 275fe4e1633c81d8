"""Whether a run may resume: `check_resumable` decides it. `fit` then needs a valid checkpoint of this run."""

import reprlib
from typing import Any

from keras_transformer.counting import counted
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.training.config import TrainConfig

#: Recorded options that may change when a run is resumed. Options that `TrainConfig.record` leaves out may always
#: change.
_CHANGEABLE = (
    *("recipe.max_time", "recipe.patience", "recipe.keep_checkpoints", "recipe.checkpoint_every"),
    *("recipe.remat", "recipe.callbacks"),
)
#: Entry of the record: the record of `Given`.
GIVEN = "given"
#: Options that set the number of steps. They may change too, except with a cosine schedule, which depends on it.
_STEP_OPTIONS = ("recipe.epochs", "recipe.max_steps")


def check_resumable(
    config: TrainConfig, directory: ModelDirectory, overwrite: bool = False, plan=None, given: dict | None = None
) -> bool:
    """Decides whether a run resumes the one in its directory, starts there, or must not use the directory.

    A run resumes if its options are those in the record, except the ones that may change. A finished run resumes only
    if one of these has changed. The data must be the same, and the run must not end before the step that it has
    reached.

    Args:
        config: the run.
        directory: its model directory.
        overwrite: start over and replace an existing model or run.
        plan: the `TrainingPlan`. Default: `None`, the data and the number of steps are not checked.
        given: the record of `Given`: model, loss and metrics of the caller. Default: `None`, they are not checked.

    Returns:
        `True` to resume the run in the directory, `False` to start a new one.

    Raises:
        ModelDirectoryError: if the directory contains a finished model or another run and `overwrite` is false, if it
            is neither empty nor a model directory, or if the run has another model, loss, metrics or data or, once
            finished, no checkpoints.
        ValueError: if the run would end before the step that it has reached.
    """
    if not directory.is_started() or overwrite:
        return False
    record = directory.record()
    changes = _changes(config, record)
    _check_options(config, directory, record["finished"], changes)
    if given is not None:
        _check_given(directory, record.get(GIVEN, {}), given)
    if plan is not None:
        _check_data(plan, directory, record)
        if record["finished"] or changes:  # Otherwise the number of steps is that of the start.
            _check_steps(config, directory, record, plan.total)
    return True


def _changes(config, record) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (recorded value, requested value) of each option that differs."""
    requested = config.record()
    recorded = {name: record[name] for name in requested if name in record}
    # Options that did not exist when the record was written have their defaults.
    defaults = TrainConfig(output=config.output, prepared=config.prepared).record()
    return _differences(requested, _with_defaults(recorded, defaults))


def _with_defaults(record, defaults):
    completed = defaults | record
    for name, default in defaults.items():
        if isinstance(default, dict) and isinstance(record.get(name), dict):
            completed[name] = _with_defaults(record[name], default)
    return completed


def _differences(requested, recorded, prefix=""):
    result = {}
    for name in dict.fromkeys([*requested, *recorded]):
        new, old = requested.get(name), recorded.get(name)
        if isinstance(new, dict) and isinstance(old, dict):
            result |= _differences(new, old, f"{prefix}{name}.")
        elif new != old:
            result[f"{prefix}{name}"] = (old, new)
    return result


def _check_options(config, directory, is_finished, changes):
    changeable = _CHANGEABLE if config.recipe.schedule == "cosine" else _STEP_OPTIONS + _CHANGEABLE
    fixed = [name for name in changes if name not in changeable]
    words = "; ".join(f"{name} is {changes[name][0]!r}, requested {changes[name][1]!r}" for name in fixed)
    names = ", ".join(changeable)
    if is_finished and (fixed or not changes):
        raise ModelDirectoryError(
            f"{directory.path} contains a finished model. To replace it, use --overwrite. "
            f"To fine-tune it, use --init_from {directory.path} with another --output. "
            f"To train it further, change one of {names}" + (f". Other differences: {words}" if fixed else "")
        )
    if fixed:
        raise ModelDirectoryError(
            f"{directory.path} contains an unfinished run with another configuration: {words}. "
            "To resume it, give these options as they were. To start over, use --overwrite. "
            f"A resumed run may change only: {names}"
        )


def _check_given(directory, recorded, given):
    changes = _differences(_without_names(given), _without_names(recorded))
    if changes:
        shown = {name: tuple(map(reprlib.repr, values)) for name, values in changes.items()}
        words = "; ".join(f"{name} is {old}, given {new}" for name, (old, new) in shown.items())
        raise ModelDirectoryError(
            f"{directory.path} contains a run with other arguments of `train`: {words}. "
            "To resume it, give the model, loss and metrics that it was started with. To start over, use --overwrite"
        )


def _without_names(config):
    """A serialized object without the names of layers and metrics, which depend on what was made before them."""
    if isinstance(config, list):
        return [_without_names(value) for value in config]
    if not isinstance(config, dict) or config.get("class_name") == "DTypePolicy":
        return config
    left_out = ("name", "build_config", "shared_object_id")
    return {name: _without_names(value) for name, value in config.items() if name not in left_out}


def _check_data(plan, directory, record):
    data = plan.data_fingerprint
    if record["finished"] and not data.keys() <= record.keys():
        raise ModelDirectoryError(
            f"{directory.path} cannot be resumed: its record lacks the training data. Use --overwrite to replace the "
            f"model, or --init_from {directory.path} with another --output to fine-tune it"
        )
    if data != {name: record.get(name) for name in data}:
        raise ModelDirectoryError(
            f"{directory.path} cannot be resumed: its run was started with other tokens or batches. "
            "Use --overwrite to start over"
        )


def _check_steps(config, directory, record, total):
    """A run with changed options must not end before the step that it has reached."""
    from keras_transformer.training.checkpoints import CheckpointFiles  # Imports Keras, which is slow.

    is_finished, recipe = record["finished"], config.recipe
    reached = CheckpointFiles(directory.checkpoints, run=record.get("run")).latest_valid().step
    if is_finished and not reached:
        raise ModelDirectoryError(
            f"{directory.path} cannot be resumed: it has no checkpoints. Use --overwrite to replace the model, "
            f"or --init_from {directory.path} with another --output to fine-tune it"
        )
    if total < reached + is_finished:
        raise ValueError(
            f"`recipe.epochs` and `recipe.max_steps` must give {'more than' if is_finished else 'at least'} the "
            f"{counted(reached, 'step')} that {directory.path} has reached. "
            f"Received: epochs={recipe.epochs}, max_steps={recipe.max_steps}, which give {counted(total, 'step')}"
        )
