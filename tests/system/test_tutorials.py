"""The tutorials run and reach what their pages show."""

import pathlib
import re

import pytest

TUTORIALS = pathlib.Path(__file__).parents[2] / "examples/tutorials"
RUN = "import os, runpy, sys; os.chdir(sys.argv[2]); runpy.run_path(sys.argv[1], run_name='__main__')"
#: The figure that each tutorial prints, and its smallest and largest value.
FIGURES = {
    "digits_to_words": (r"exact match on 1000 held-out images: (.+)", 0.93, 1.0),
    "time_series": (r"model +(.+)", 0.16, 0.25),
    "vision_transformer": (r"accuracy with onnxruntime: (.+)", 0.95, 1.0),
    "speech_to_text": (r"error rate with onnxruntime: (.+)", 0.0, 0.05),
    "language_model": (r"correct continuations: (.+)", 0.9, 1.0),
    "masked_pretraining": (r"pretrained, 100 labels: accuracy (\S+)", 0.9, 1.0),
}


def test_every_tutorial_has_a_figure():
    assert {path.stem for path in TUTORIALS.glob("*.py")} == set(FIGURES)


@pytest.mark.nightly
@pytest.mark.parametrize("name", FIGURES)
def test_a_tutorial_reaches_its_figure(name, run_python, tmp_path):
    if "sklearn" in (TUTORIALS / f"{name}.py").read_text():
        pytest.importorskip("sklearn")
    printed = run_python(RUN, TUTORIALS / f"{name}.py", tmp_path, MPLBACKEND="Agg")
    figure, smallest, largest = FIGURES[name]
    assert smallest <= float(re.search(figure, printed)[1]) <= largest
