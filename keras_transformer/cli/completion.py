"""Completion of the command line in the shell, by argcomplete.

The shell function of `register-python-argcomplete` runs the command with the line so far in the environment.
"""

import argparse
import os
from collections.abc import Callable, Mapping

#: The number of words before the arguments, `keras-transformer` alone; set by the shell function.
_WORDS_BEFORE = "_ARGCOMPLETE"


def is_requested() -> bool:
    """Whether the shell runs this process to complete a line."""
    return _WORDS_BEFORE in os.environ


def complete(commands: Mapping[str, Callable[[list[str]], object]]) -> None:
    """Prints the possible completions of the line, and ends the process."""
    import argcomplete
    from argcomplete.lexers import split_line

    before = int(os.environ[_WORDS_BEFORE])
    line = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    name, *_ = [*split_line(*line)[3][before:], "help"]
    if name in commands:
        os.environ[_WORDS_BEFORE] = str(before + 1)
        commands[name]([])
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", action="store_true")
    parser.add_argument("name", nargs="*", choices=[*commands, "help"])
    argcomplete.autocomplete(parser)
