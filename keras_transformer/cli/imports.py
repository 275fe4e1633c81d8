"""The option `--import`: modules with layers of the user, which must be registered before a model is loaded."""

from jsonargparse import ArgumentParser

from keras_transformer.user_modules import import_user_module


def add_imports(parser: ArgumentParser) -> None:
    """Adds the option to the parser of a command that loads models."""
    help = (
        "Module to import before a model is loaded, for example one that registers your own layers. Searched in the "
        "current folder too. May be repeated"
    )
    parser.add_argument("--import", action="append", metavar="MODULE", help=help)


def import_modules(names: list[str] | str | None) -> None:
    """Imports the modules that the option names, also from the current folder.

    Args:
        names: value of the option, from the command line or from YAML.

    Raises:
        ValueError: if a module cannot be imported.
    """
    names = [names] if isinstance(names, str) else names or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"`--import` must be names of modules. Received: {names}")
    for name in names:
        import_user_module(name, "--import")
