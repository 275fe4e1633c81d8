"""The command line. It dispatches to the commands, and prints user errors as a message with exit status 2."""

import argparse
import os
import sys
import warnings

from keras_transformer.cli import completion
from keras_transformer.cli.commands import COMMANDS
from keras_transformer.cli.messages import describe_os_error, did_you_mean
from keras_transformer.cli.quiet import quiet_tensorflow
from keras_transformer.storage.exhaustion import describe_out_of_memory, is_out_of_memory


def main(arguments: list[str] | None = None) -> int:
    """Runs `keras-transformer`.

    Args:
        arguments: command line arguments. Default: `sys.argv[1:]`.

    Returns:
        Exit status: 0 on success; 1 if an export or import differs from its model, training diverged, or a worker was
        lost or stopped; 2 for errors that the user can fix, such as a full disk or too little memory; 143 or 130 if
        SIGTERM or SIGINT has stopped a training, which can be resumed.
    """
    if completion.is_requested():
        completion.complete(COMMANDS)
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["help"]
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    try:
        quiet_tensorflow()
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(name, rest)
    except BrokenPipeError:  # The reading process, such as `head`, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (argparse.ArgumentError, ValueError, OSError) as error:
        if is_out_of_memory(error):
            return _fail(name, error, describe_out_of_memory(name))
        return _fail(name, error, describe_os_error(error) if isinstance(error, OSError) else str(error))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if is_out_of_memory(error):
            return _fail(name, error, describe_out_of_memory(name))
        from keras_transformer.training.stopping import Stopped

        if not isinstance(error, Stopped):
            raise
        print(f"keras-transformer {name}: {error}", file=sys.stderr)
        return error.status


def _fail(name, error, message) -> int:
    message = ". ".join([message, *getattr(error, "__notes__", [])])
    print(f"keras-transformer {name}: error: {message}", file=sys.stderr)
    return 2


def _run(name, arguments) -> int:
    if name in COMMANDS:
        return COMMANDS[name](arguments) or 0
    if name in ("help", "-h", "--help"):
        print(_usage(), flush=True)
        return 0
    if name in ("-V", "--version"):
        import keras_transformer

        print(f"keras-transformer {keras_transformer.__version__}", flush=True)
        return 0
    print(
        f"unknown command: {name}{did_you_mean(name, [*COMMANDS, 'help', '--help', '--version'])}\n\n{_usage()}",
        file=sys.stderr,
    )
    return 2


def _usage() -> str:
    lines = ["usage: keras-transformer COMMAND ...", ""]
    width = max(map(len, COMMANDS))
    lines += [f"  {name:{width}}  {command.__doc__}" for name, command in COMMANDS.items()]
    more = "`keras-transformer help COMMAND` shows the options of a command, `keras-transformer --version` the version."
    return "\n".join([*lines, "", more])


def _show_warning(message, *_):
    print(f"keras-transformer: warning: {message}", file=sys.stderr)
