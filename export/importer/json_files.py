"""JSON files of a foreign model, which may contain anything."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises `ValueError` for other contents."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def read_fields(path: Path) -> dict[str, Any]:
    """Reads the fields of a JSON object that are not null. Raises `ValueError` for other contents."""
    return {name: value for name, value in read_json(path).items() if value is not None}


def reading(function: Callable[[Path], Any], path: Path) -> Any:
    """Applies a function to the path of a file. If it fails on the contents, raises `ValueError` or `OSError`."""
    try:
        return function(path)
    except (TypeError, LookupError, AttributeError, RecursionError) as error:  # JSON with other contents than expected.
        raise ValueError(f"unknown contents ({type(error).__name__}: {error})") from error
