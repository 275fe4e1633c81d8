"""The pages name what exists: public names, extras, files. MkDocs checks the links within the site."""

import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


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


def test_the_readme_is_one_page():
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(text.split()) <= 900
