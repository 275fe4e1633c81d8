"""Modules of the user, which the command line imports by name."""

import importlib
import os
import sys
from types import ModuleType


def import_user_module(name: str, option: str) -> ModuleType:
    """Imports a module, also from the current folder.

    Args:
        name: name of the module.
        option: the option that names it, for the message.

    Raises:
        ValueError: if the module cannot be imported.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # At the end: a file there must not hide a library.
    try:
        return importlib.import_module(name)
    except Exception as error:  # A module may raise anything.
        raise ValueError(
            f"`{option}` must name a module that can be imported. Received: {name} ({type(error).__name__}: {error})"
        ) from error
