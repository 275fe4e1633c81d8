"""The parser of the commands."""

import argparse
from collections.abc import Callable, Collection

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from keras_transformer.cli.help_formatter import GROUP_HELP, HelpFormatter
from keras_transformer.cli.imports import add_imports, import_modules
from keras_transformer.cli.kinds import allows_none, describe_kind, with_article
from keras_transformer.cli.messages import describe_option_error

#: Groups of options that `--help=GROUP` shows.
_HELP_GROUPS = ("tokenizer", "model", "recipe", "augmentation")


class _Parser(ArgumentParser):
    """A jsonargparse parser with rewritten error messages, which can print the help of selected options."""

    def add_class_arguments(self, *args, **kwargs):
        """See `jsonargparse.ArgumentParser`. The value of a boolean option may be omitted: `--clean` is true."""
        added = super().add_class_arguments(*args, **kwargs)
        for action in self._actions:
            if getattr(action, "_typehint", None) is bool:
                action.nargs, action.const = "?", True
        return added

    def parse_args(self, *args, **kwargs):
        """See `jsonargparse.ArgumentParser`. If the options are valid, the modules of `--import` are imported."""
        try:
            options = super().parse_args(*args, **kwargs)
        except ArgumentError as error:
            raise ValueError(describe_option_error(str(error), self._option_string_actions)) from error
        except RecursionError as error:
            raise ValueError("The file of `--config` must not refer to itself") from error
        self._check(options)
        import_modules(options.pop("import", None))
        return options

    def _check(self, options):
        """Refuses what jsonargparse accepts in YAML: `null` for each option, and any value for a group or a flag."""
        for action in self._actions:
            value, kind = options.get(action.dest), getattr(action, "_typehint", None)
            if action.help == GROUP_HELP:
                kind, is_valid = dict, isinstance(value, Namespace)
            elif action.dest not in options or action.default is None:
                continue
            elif action.nargs == 0:
                kind, is_valid = bool, isinstance(value, bool)
            else:
                is_valid = value is not None or kind is None or allows_none(kind)
            if not is_valid:
                expected = with_article(describe_kind(kind))
                raise ValueError(f"`--{action.dest}` must be {expected}. Received: {_in_yaml(value)}")

    def describe_option(self, name: str, text: str) -> None:
        """Adds to the help of an option."""
        action = next(action for action in self._actions if action.dest == name)
        action.help = f"{(action.help or '').removesuffix('.')}: {text}."

    def print_options(self, names: Collection[str]) -> None:
        """Prints the help of selected options.

        Args:
            names: names of options without dashes. A group such as `model` selects all `model.…`.
        """
        for action in self._actions:
            if not any(action.dest == name or action.dest.startswith(f"{name}.") for name in names):
                action.help = argparse.SUPPRESS
        self.usage = "%(prog)s --output OUTPUT [options]"
        self.print_help()


def _in_yaml(value) -> str:
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def make_parser(command: Callable, loads_models: bool = False) -> _Parser:
    """Makes the parser of a command, without other options. Abbreviated option names are not accepted.

    Args:
        command: function of the command. Its name and docstring appear in the help.
        loads_models: whether to add `--import`.
    """
    name = command.__name__.rstrip("_").replace("_", "-")
    parser = _Parser(
        prog=f"keras-transformer {name}",
        description=command.__doc__,
        exit_on_error=False,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    if loads_models:
        add_imports(parser)
    return parser


def make_config(
    command: Callable,
    dataclass: type,
    arguments: list[str],
    overwrite: str,
    essentials: Collection[str] = (),
    loads_models: bool = True,
):
    """Parses the options of a command, from the command line and a YAML file, to a dataclass.

    Args:
        command: function of the command.
        dataclass: the dataclass, with one field per option.
        arguments: command line arguments.
        overwrite: help of `--overwrite`.
        essentials: names of the options that a plain `--help` shows. Default: all options.
        loads_models: whether to add `--import`.

    Returns:
        An instance of the dataclass.
    """
    parser = make_parser(command, loads_models)
    parser.add_argument("--config", action="config", help="YAML file with options; `--print_config` prints such a file")
    parser.add_class_arguments(dataclass, skip={"overwrite"})
    parser.add_argument("--overwrite", action="store_true", help=overwrite)
    if essentials:
        _show_help(parser, arguments, essentials)
    options = parser.instantiate(parser.parse_args(arguments))
    options.pop("config", None)
    return dataclass(**vars(options))


def _show_help(parser, arguments, essentials):
    """If the arguments contain `--help` or `--help=GROUP`, prints the help of the group and exits."""
    groups = {"": essentials, **{group: [group] for group in _HELP_GROUPS}}
    asked = [a.partition("=")[2] for a in arguments if a == "-h" or a.partition("=")[0] == "--help"]
    if not asked:
        return
    if asked[0] not in (*groups, "all"):
        raise ValueError(f"`--help` must be one of {', '.join(filter(None, groups))}, all. Received: {asked[0]}")
    if asked[0] == "all":
        parser.print_help()
    else:
        more = ", ".join(f"--help={group}" for group in _HELP_GROUPS)
        parser.epilog = f"More options: {more}; --help=all shows every option."
        parser.print_options(groups[asked[0]])
    parser.exit()
