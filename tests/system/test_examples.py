"""The examples run, and do what they say."""

import pathlib
import re

import pytest

from keras_transformer.cli import main

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
RUN = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


@pytest.mark.slow
def test_one_layer_learns(run_python):
    accuracies = re.findall(r"val_accuracy: ([\d.]+)", run_python(RUN, EXAMPLES / "one_layer.py"))
    assert float(accuracies[-1]) > 0.95


@pytest.mark.parametrize("configuration", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_lacks_its_data_only(configuration, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", f"--config={configuration}", "--output=run"]) == 2
    assert "Cannot read train.en.gz: No such file or directory" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
