"""Hooks of MkDocs: the page of every option, and the package laid out as it installs."""

import contextlib
import re
import tempfile
from pathlib import Path
from unittest import mock

from mkdocs.plugins import event_priority

from keras_transformer.cli.kinds import describe_kind

ROOT = Path(__file__).parent.parent
#: Deleted when the process ends.
_FOLDER = tempfile.TemporaryDirectory()
#: A default that is computed, in the help of an option.
_COMPUTED = re.compile(r"[ ;.]*(?:\(default: (.+)\)|[Dd]efault: (.+?)(?:\.(?= [A-Z]|$)|$))")


@event_priority(100)  # Before mkdocstrings reads its configuration.
def on_config(config):
    """Lets mkdocstrings read `training/`, `export/` and `apps/` where they install: inside the package."""
    package = Path(_FOLDER.name, "keras_transformer")
    package.mkdir()
    for path in (*(ROOT / "keras_transformer").iterdir(), *(ROOT / name for name in ("training", "export", "apps"))):
        (package / path.name).symlink_to(path)
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [_FOLDER.name]
    return config


def on_page_markdown(markdown, page, **kwargs):
    """Fills the page of every option."""
    return markdown.replace("<!-- options -->", options()) if page.file.src_path == "options.md" else markdown


def options() -> str:
    """The options of every command, as Markdown."""
    from keras_transformer.cli.commands import COMMANDS
    from keras_transformer.training.mixture_config import CorpusConfig, StageConfig

    parts = [part for name, command in COMMANDS.items() for part in _describe(name, command)]
    return "\n\n".join([*parts, *_describe_entry("corpora", CorpusConfig), *_describe_entry("stages", StageConfig)])


def _describe(name, command):
    """A command: its heading, its description, a table of its options, and one of each group of options."""
    yield f"## {name}"
    yield command.__doc__
    groups = {}
    for action in sorted(_actions(command), key=lambda action: (bool(action.option_strings), not action.required)):
        groups.setdefault(action.dest.rpartition(".")[0], []).append(action)
    for group, actions in groups.items():
        if group:
            yield f"### {name}: {group}"
        yield _table("option", map(_row, actions))


def _describe_entry(name, dataclass):
    """An entry of an option that is a list or a mapping: its heading, and a table of its keys."""
    from keras_transformer.cli.options import ArgumentParser

    parser = ArgumentParser()
    parser.add_class_arguments(dataclass)
    yield f"### An entry of `{name}`"
    keys = [action for action in parser._actions if action.dest != "help"]
    yield _table("key", (_row(action).replace("`--", "`", 1) for action in keys))


def _table(first, rows):
    return "\n".join([f"| {first} | value | default | meaning |", "|---|---|---|---|", *rows])


def _actions(command):
    """The arguments that the parser of a command knows: the parser is taken when it is about to parse."""
    from keras_transformer.cli import options

    class Taken(Exception):
        pass

    with mock.patch.object(options.ArgumentParser, "parse_args", side_effect=Taken, autospec=True) as parse:
        with contextlib.suppress(Taken):
            command([])
    actions = parse.call_args.args[0]._actions
    groups = {action.dest.rpartition(".")[0] for action in actions}
    return [action for action in actions if action.dest not in {"help", "print_config", *groups}]


def _row(action):
    default, meaning = _default(action)
    name = f"`{action.option_strings[0]}`" if action.option_strings else f"`{action.dest}`"
    cells = (name, _kind(action), default, _sentence(meaning))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sentence(text):
    first, rest = text.split(" ", 1) if " " in text else (text, "")
    first = first.capitalize() if first.isascii() and first.islower() else first
    return f"{first} {rest}".rstrip(" .") + "."


def _kind(action):
    if action.choices:
        return ", ".join(f"`{choice}`" for choice in action.choices)
    if action.nargs == 0:
        return "flag"
    return describe_kind(getattr(action, "_typehint", None) or action.type or str)


def _default(action):
    """The default of an option, and its meaning without the default."""
    meaning = " ".join((action.help or "").replace("%%", "%").split())
    computed = _COMPUTED.search(meaning)
    if computed:
        value, words = computed.groups()
        value = words or (value if " " in value else f"`{value}`")
        return value, f"{meaning[: computed.start()]}.{meaning[computed.end() :]}"
    if action.required:
        return "required", meaning
    if action.nargs == 0:
        return "off", meaning
    if action.default is None:
        return "the preset's" if action.dest.startswith("model.") else "none", meaning
    default = action.default
    return f"`{str(default).lower() if isinstance(default, bool) else default}`", meaning
