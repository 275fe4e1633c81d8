"""Records of runs: migration of old ones, and comparison with the options of a run that would resume."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

#: Old names of what format 2 has renamed; options of the recipe with a dot.
_RENAMED_IN_2 = {"tokens": "prepared", "recipe.keep": "recipe.keep_checkpoints", "model_as_built": "model_config"}


def migrate(record: dict[str, Any]) -> dict[str, Any]:
    """A record of any earlier format with the names of the current one.

    Args:
        record: the contents of `config.yaml`, with its `format`.

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
    """A record that was written before some options existed, completed with their defaults.

    Args:
        record: options by name; groups of options are dictionaries.
        defaults: the default of every option, in the same form.

    Example:

    >>> with_defaults({"recipe": {"seed": 7}}, {"recipe": {"seed": 1, "keep": 5}, "reverse": False})
    {'recipe': {'seed': 7, 'keep': 5}, 'reverse': False}
    """
    completed = defaults | record
    for name, default in defaults.items():
        if isinstance(default, dict) and isinstance(record.get(name), dict):
            completed[name] = with_defaults(record[name], default)
    return completed


def differences(asked: dict[str, Any], found: dict[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """The options in which two records differ.

    Args:
        asked: options by name; groups of options are dictionaries.
        found: the other record.
        prefix: of the names.

    Returns:
        Dotted name -> the values found and asked for; `None` for an option that a record lacks.

    Example:

    >>> differences({"recipe": {"seed": 1}, "reverse": True}, {"recipe": {"seed": 2}, "reverse": True})
    {'recipe.seed': (2, 1)}
    """
    result = {}
    for name in dict.fromkeys([*asked, *found]):
        ours, theirs = asked.get(name), found.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            result |= differences(ours, theirs, f"{prefix}{name}.")
        elif ours != theirs:
            result[f"{prefix}{name}"] = (theirs, ours)
    return result


def refusal(path: Path, finished: bool, changes: dict[str, tuple[Any, Any]], changeable: Collection[str]) -> str | None:
    """Why the run in a directory may not be resumed, in words; `None` if it may.

    Args:
        path: the directory.
        finished: whether the run has finished. Such a run is resumed only to go on with changed options.
        changes: of `differences`.
        changeable: dotted names of the options that a resumed run may change.
    """
    fixed = [name for name in changes if name not in changeable]
    words = "; ".join(f"{name}: {changes[name][0]!r} there, {changes[name][1]!r} asked for" for name in fixed)
    names = ", ".join(changeable)
    if finished and (fixed or not changes):
        message = f"{path} holds a finished model; --overwrite replaces it"
        if changeable:
            message += f", --init_from {path} with another --output fine-tunes it, other values of {names} continue it"
        return f"{message}. It differs in: {words}" if fixed else message
    if fixed:
        message = f"{path} holds an unfinished run of another configuration, differing in: {words}"
        return f"{message}. A resumed run may change only: {names}" if changeable else message
    return None
