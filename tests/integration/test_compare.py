import json

import pytest

from keras_transformer.cli import main


@pytest.fixture
def test_set(toy_files):
    return ["--source", str(toy_files / "test.en"), "--reference", str(toy_files / "test.de")]


@pytest.mark.nightly
def test_a_model_is_compared_with_a_file(unlike, toy_files, keras_translator, lines, test_set, capsys):
    arguments = ["compare", str(unlike), str(toy_files / "test.de"), *test_set, "--extra_length=5"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["names"] == [str(unlike), str(toy_files / "test.de")] and found["lines"] == 20
    assert found["metrics"][1]["scores"][1] == 100.0 > found["metrics"][1]["scores"][0]
    translations = [translation.text for translation in keras_translator.translate(lines)]
    assert all(line["translations"][0] == translations[line["number"] - 1] for line in found["better"])
    assert main(arguments) == 0
    assert "significant" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "message"), [("nowhere", "nowhere"), ("train.de", "one line per line of `--source`, 20. Received: 300")]
)
def test_bad_input_is_refused(unlike, toy_files, other, message, test_set, capsys):
    assert main(["compare", str(unlike), str(toy_files / other), *test_set]) == 2
    assert message in capsys.readouterr().err
