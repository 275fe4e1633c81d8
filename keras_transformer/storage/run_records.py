"""Records of runs in `config.yaml`: migrates old formats, and compares a record with the options of a new run."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

#: Old name -> new name of the options that format 2 renamed. Nested names are joined with a dot.
_RENAMED_IN_2 = {"tokens": "prepared", "recipe.keep": "recipe.keep_checkpoints", "model_as_built": "model_config"}


def migrate(record: dict[str, Any]) -> dict[str, Any]:
    """Renames the options of a record of an earlier format to their current names.

    Args:
        record: the contents of `config.yaml`, including `format`.

    Returns:
        The record with current names. Its `format` is unchanged.

    Example:

    >>> migrate({"format": 1, "tokens": None, "recipe": {"keep": 5, "seed": 1}})
    {'format': 1, 'prepared': None, 'recipe': {'keep_checkpoints': 5, 'seed': 1}}
    """
    return _renamed(record, _RENAMED_IN_2) if record["format"] < 2 else record


def _renamed(record, names, prefix=""):
    result = {}
    for name, value in record.items():
        if isinstance(value, dict):
            value = _renamed(value, names, f"{prefix}{name}.")
        result[names.get(f"{prefix}{name}", f"{prefix}{name}").removeprefix(prefix)] = value
    return result


def with_defaults(record: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Completes a record with the defaults of options that did not exist when it was written.

    Args:
        record: option name -> value. Groups of options are nested dictionaries.
        defaults: default of every option, in the same form.

    Example:

    >>> with_defaults({"recipe": {"seed": 7}}, {"recipe": {"seed": 1, "epochs": 5}, "reverse": False})
    {'recipe': {'seed': 7, 'epochs': 5}, 'reverse': False}
    """
    completed = defaults | record
    for name, default in defaults.items():
        if isinstance(default, dict) and isinstance(record.get(name), dict):
            completed[name] = with_defaults(record[name], default)
    return completed


def differences(requested: dict[str, Any], recorded: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Compares two records.

    Args:
        requested: requested options: name -> value. Groups of options are nested dictionaries.
        recorded: recorded options in the same form.
        prefix: prefix of the dotted names in the result.

    Returns:
        Dotted name -> (recorded value, requested value) of each differing option. A missing option has the value
        `None`.

    Example:

    >>> differences({"recipe": {"seed": 1}, "reverse": True}, {"recipe": {"seed": 2}, "reverse": True})
    {'recipe.seed': (2, 1)}
    """
    result = {}
    for name in dict.fromkeys([*requested, *recorded]):
        new, old = requested.get(name), recorded.get(name)
        if isinstance(new, dict) and isinstance(old, dict):
            result |= differences(new, old, f"{prefix}{name}.")
        elif new != old:
            result[f"{prefix}{name}"] = (old, new)
    return result


def refusal(path: Path, finished: bool, changes: dict[str, tuple[Any, Any]], changeable: Collection[str]) -> str | None:
    """Explains why the run in a directory cannot be resumed.

    Args:
        path: the model directory.
        finished: whether the recorded run has finished. A finished run is resumed only with changed options.
        changes: result of `differences`.
        changeable: dotted names of the options that a resumed run may change.

    Returns:
        An error message, or `None` if the run can be resumed.
    """
    fixed = [name for name in changes if name not in changeable]
    words = "; ".join(f"{name} is {changes[name][0]!r}, requested {changes[name][1]!r}" for name in fixed)
    names = ", ".join(changeable)
    if finished and (fixed or not changes):
        message = f"{path} contains a finished model. To replace it, use --overwrite"
        if changeable:
            message += (
                f". To fine-tune it, use --init_from {path} with another --output. "
                f"To train it further, change one of {names}"
            )
        return f"{message}. Other differences: {words}" if fixed else message
    if fixed:
        message = (
            f"{path} contains an unfinished run with another configuration: {words}. "
            "To resume it, give these options as they were. To start over, use --overwrite"
        )
        return f"{message}. A resumed run may change only: {names}" if changeable else message
    return None
