"""Runs tutorials and writes their pages to `docs/tutorials`: python docs/tutorials.py examples/tutorials/NAME.py."""

import base64
import math
import resource
import sys
import tempfile
from pathlib import Path

import jupytext
import nbclient

PAGES = Path(__file__).parent / "tutorials"


def write_page(script: Path) -> None:
    """Runs a script in the percent format, and writes its text, its code, what it prints and its pictures."""
    notebook = jupytext.read(script)
    before = _seconds()
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, kernel_name="python3", resources=resources).execute()
    minutes = math.ceil((_seconds() - before) / 60)
    for picture in PAGES.glob(f"{script.stem}-*.png"):
        picture.unlink()
    title, introduction = notebook.cells[0].source.split("\n", 1)
    origin = f"*This page is the output of `examples/tutorials/{script.name}`, which takes {minutes} min of CPU time.*"
    cells = (part for cell in notebook.cells[1:] for part in _describe(cell, script.stem))
    page = "\n\n".join([title, origin, introduction.strip(), *cells])
    (PAGES / f"{script.stem}.md").write_text(f"{page}\n", encoding="utf-8")


def _seconds():
    """CPU time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _describe(cell, name):
    """A cell as Markdown. Pictures are written beside the page."""
    if cell.cell_type == "markdown":
        yield cell.source
        return
    yield f"```python\n{cell.source}\n```"
    printed = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
    if printed:
        yield f"```\n{printed.rstrip()}\n```"
    for output in cell.outputs:
        if "image/png" in output.get("data", {}):
            number = len(list(PAGES.glob(f"{name}-*.png"))) + 1
            picture = PAGES / f"{name}-{number}.png"
            picture.write_bytes(base64.b64decode(output.data["image/png"]))
            yield f"![Picture {number}]({picture.name})"


if __name__ == "__main__":
    for path in sys.argv[1:]:
        write_page(Path(path))
