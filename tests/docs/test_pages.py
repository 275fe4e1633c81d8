"""The pages name what exists: public names, extras, files. MkDocs checks the links within the site."""

import pathlib
import re
import shlex
import tomllib

import pytest

from keras_transformer.cli import options
from keras_transformer.cli.commands import COMMANDS

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
SHELL = re.compile(r"^ *```sh$(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?<![\w-])keras-transformer ([a-z][^|<>)&\n]*)")


def test_every_public_name_is_in_the_reference():
    pages = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/api/*.md"))
    shown = {identifier.rsplit(".", 1)[1] for identifier in re.findall(r"^::: (\S+)$", pages, re.MULTILINE)}
    names = (ROOT / "tests/public_names.txt").read_text(encoding="utf-8").split()
    packages = {name for name in names if any(other.startswith(f"{name}.") for other in names)}
    assert {name.rsplit(".", 1)[1] for name in names if name not in packages} - shown == {"PRESETS", "__version__"}


def test_every_extra_that_is_installed_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    found = {name for names in re.findall(r"'\.\[([\w,]+)\]'", text) for name in names.split(",")}
    assert found and found <= set(extras)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_linked_files_exist(page):
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_block_of_code_is_of_a_kind_that_is_run(page):
    fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(fences[::2]) <= {"python", "sh", ""} and set(fences[1::2]) <= {""}


def commands():
    """The calls of `keras-transformer` in the blocks of all pages, those that no test runs included."""
    text = "".join(block for page in PAGES for block in SHELL.findall(page.read_text(encoding="utf-8")))
    return dict.fromkeys(" ".join(call.split()) for call in COMMAND.findall(text.replace("\\\n", " ")))


@pytest.mark.parametrize("call", commands())
def test_the_options_of_commands_exist(call, tmp_path, monkeypatch):
    class ParsedError(Exception):
        """The parser has accepted the arguments."""

    parse_args = options.ArgumentParser.parse_args

    def parse_and_stop(self, *args, **kwargs):
        parse_args(self, *args, **kwargs)
        raise ParsedError

    monkeypatch.setattr(options.ArgumentParser, "parse_args", parse_and_stop)
    for folder in ("examples", "benchmarks"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "run.yaml").write_text("max_length: 40\n")
    for path, text in FILE.findall("".join(page.read_text(encoding="utf-8") for page in PAGES)):
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(call.replace("--print_config", ""), comments=True)
    if name != "help":
        with pytest.raises(ParsedError):
            COMMANDS[name](arguments)


def test_the_commands_are_found():
    assert len(commands()) > 30 and {call.split()[0] for call in commands()} >= {"train", "translate", "export"}


def test_the_readme_is_one_page():
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(text.split()) <= 900
