"""Hooks of MkDocs: the page of every option, and the package laid out as it installs."""

import contextlib
import dataclasses
import io
import os
import tempfile
from pathlib import Path
from typing import Literal, get_args, get_origin

import docstring_parser
from mkdocs.plugins import event_priority

ROOT = Path(__file__).parent.parent
#: Removed when the process ends.
_FOLDER = tempfile.TemporaryDirectory()
#: Commands whose options are not those of a dataclass: their help is shown.
_COMMANDS = ("translate", "evaluate", "score", "average", "plot-attention", "import-marian")


@event_priority(100)  # Before mkdocstrings reads its configuration.
def on_config(config):
    """Lets mkdocstrings read `training/` and `export/` where they install: inside the package."""
    package = Path(_FOLDER.name, "keras_transformer")
    package.mkdir()
    for path in (*(ROOT / "keras_transformer").iterdir(), ROOT / "training", ROOT / "export"):
        (package / path.name).symlink_to(path)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_FOLDER.name]
    return config


def on_page_markdown(markdown, page, **kwargs):
    """Fills the page of every option."""
    return markdown.replace("<!-- options -->", options()) if page.file.src_path == "options.md" else markdown


def options() -> str:
    """The options of every command, as Markdown."""
    from keras_transformer.export.config import ExportConfig
    from keras_transformer.training.config import TrainConfig
    from keras_transformer.training.data_config import PrepareConfig

    parts = []
    for command, config in (("train", TrainConfig), ("prepare", PrepareConfig), ("export", ExportConfig)):
        parts += [f"## {command}", *_tables(config, command)]
    for command in _COMMANDS:
        parts += [f"## {command}", f"```text\n{_help(command)}\n```"]
    return "\n\n".join(parts)


def _tables(config, command, prefix=""):
    """A table of the options of a dataclass, then those of the dataclasses in its fields."""
    words, rows, nested = _words(config), [], []
    for field in dataclasses.fields(config):
        if dataclasses.is_dataclass(field.type):
            nested.append(field)
        else:
            cells = (f"`--{prefix}{field.name}`", _kind(field.type), _default(field), words.get(field.name, ""))
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    yield "\n".join(["| option | type | default | meaning |", "|---|---|---|---|", *rows])
    for field in nested:
        yield f"### {command}: {field.name}"
        yield from _tables(field.type, command, f"{prefix}{field.name}.")


def _words(config):
    """Field -> its description, from the docstrings of the class and of its bases."""
    words = {}
    for base in reversed(config.__mro__):
        for param in docstring_parser.parse(base.__doc__ or "").params:
            words[param.arg_name] = " ".join(param.description.split())
    return words


def _kind(kind):
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    parts = [part for part in get_args(kind) if part is not type(None)] if "|" in str(kind) else []
    if parts:
        return " or ".join(dict.fromkeys(map(_kind, parts)))
    return str(kind) if get_origin(kind) else kind.__name__


def _default(field):
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default is None:
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _help(command):
    from keras_transformer.cli import main

    os.environ["COLUMNS"] = "100"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(["help", command])
    return printed.getvalue().rstrip()
