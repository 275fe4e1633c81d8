"""The page of each tutorial shows its script as it is, with pictures."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = sorted(ROOT.glob("examples/tutorials/*.py"))
PAGES = ROOT / "docs/tutorials"


def cells_of(script):
    """The cells of a script in the percent format: whether each is text, and its source."""
    for kind, source in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n)*)", script.read_text(encoding="utf-8"), re.MULTILINE):
        is_text = kind.strip() == "[markdown]"
        yield is_text, (re.sub(r"^# ?", "", source, flags=re.MULTILINE) if is_text else source).strip()


def test_every_tutorial_has_a_page_in_the_navigation():
    names = [f"tutorials/{script.stem}.md" for script in SCRIPTS]
    listed = re.findall(r"- (tutorials/\S+)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert names and sorted(listed) == names == sorted(f"tutorials/{page.name}" for page in PAGES.glob("*.md"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_page_shows_the_script(script):
    """If this fails, run the tutorial again: `make tutorials`."""
    page = (PAGES / f"{script.stem}.md").read_text(encoding="utf-8")
    code = [source for is_text, source in cells_of(script) if not is_text]
    assert re.findall(r"^```python\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL) == code
    for text in (source for is_text, source in cells_of(script) if is_text):
        for paragraph in text.split("\n\n"):
            assert paragraph in page


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_pictures_of_a_page_are_small(script):
    shown = re.findall(r"^!\[.*\]\((.*)\)$", (PAGES / f"{script.stem}.md").read_text(encoding="utf-8"), re.MULTILINE)
    pictures = {picture.name: picture.stat().st_size for picture in PAGES.glob(f"{script.stem}-*.png")}
    assert shown and sorted(shown) == sorted(pictures) and max(pictures.values()) < 60_000
