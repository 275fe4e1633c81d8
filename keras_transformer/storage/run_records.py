"""Records of runs in `config.yaml`: migrates old formats."""

from typing import Any

#: Old name -> new name of the options that format 2 renamed. Nested names are joined with a dot.
_RENAMED_IN_2 = {"tokens": "prepared", "recipe.keep": "recipe.keep_checkpoints", "model_as_built": "model_config"}


def migrate(record: dict[str, Any]) -> dict[str, Any]:
    """Renames the options of a record of an earlier format to their current names. Its `format` is unchanged.

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
