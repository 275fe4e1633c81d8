"""The command line: parses, delegates, and turns what users can mend into a message and status 2."""

import os
import sys
import warnings

from jsonargparse import ArgumentError

from keras_transformer.cli.commands import COMMANDS
from keras_transformer.cli.quiet import quiet_tensorflow


def main(arguments: list[str] | None = None) -> int:
    """Runs `keras-transformer`.

    Args:
        arguments: of the command line. Default: the process's.

    Returns:
        Exit status: 0; 1 where an export disagreed with its model or a training's loss ran away; 2 for what the
        user can mend; 143 or 130 of a training that SIGTERM or SIGINT has stopped, and that can be resumed.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0] if arguments else "--help"
    if name not in COMMANDS:
        is_help = name in ("-h", "--help")
        print(
            _usage() if is_help else f"unknown command: {name}\n\n{_usage()}", file=sys.stderr if not is_help else None
        )
        return 0 if is_help else 2
    try:
        with quiet_tensorflow(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return COMMANDS[name](arguments[1:])
    except BrokenPipeError:  # The reader has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ArgumentError, ValueError, OSError) as error:
        print(
            f"keras-transformer {name}: error: {'. '.join([str(error), *getattr(error, '__notes__', [])])}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130


def _usage() -> str:
    lines = ["usage: keras-transformer COMMAND ...", "", "COMMAND --help says more.", ""]
    return "\n".join(lines + [f"  {name:13} {command.__doc__}" for name, command in COMMANDS.items()])


def _show_warning(message, *_):
    print(f"keras-transformer: warning: {message}", file=sys.stderr)
