"""What every command's parser has in common."""

from collections.abc import Callable

from jsonargparse import ArgumentParser


def make_parser(command: Callable) -> ArgumentParser:
    """The parser of a command, without options.

    Args:
        command: the function; its name and its docstring are the help's.
    """
    name = command.__name__.replace("_", "-")
    return ArgumentParser(prog=f"keras-transformer {name}", description=command.__doc__, exit_on_error=False)


def make_config(command: Callable, dataclass: type, arguments: list[str], overwrite: str):
    """The dataclass of a command's options, which may stand in a YAML file.

    Args:
        command: the function of the command.
        dataclass: has a field for each option.
        arguments: of the command line.
        overwrite: help of `--overwrite`.

    Returns:
        An instance of the dataclass.
    """
    parser = make_parser(command)
    parser.add_argument("--config", action="config", help="YAML file of options; --print_config prints one")
    parser.add_class_arguments(dataclass, skip={"overwrite"})
    parser.add_argument("--overwrite", action="store_true", help=overwrite)
    options = parser.instantiate(parser.parse_args(arguments))
    options.pop("config", None)
    return dataclass(**vars(options))
