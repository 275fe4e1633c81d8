"""JSON files."""

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
        path: the file.

    Raises:
        OSError: if the file cannot be opened.
        ValueError: if it does not contain a JSON object. The message contains the path.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"Unreadable {path}: {error!r}") from error
    if not isinstance(content, dict):
        raise ValueError(f"Unreadable {path}: not a JSON object")
    return content
