"""The examples run and give the expected results."""

import collections
import html
import io
import itertools
import json
import os
import pathlib
import random
import re
import runpy
import shutil
import subprocess
import sys
import types

import num2words
import pytest
import rich.console
import yaml

from keras_transformer.cli import main
from keras_transformer.config import TransformerConfig
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.config import ModelConfig, RecipeConfig

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
CONFIGURATIONS = sorted(EXAMPLES.glob("**/*.yaml"))
RUN = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.mark.nightly
def test_one_layer_learns(run_python):
    accuracies = re.findall(r"val_accuracy: ([\d.]+)", run_python(RUN, EXAMPLES / "one_layer.py"))
    assert float(accuracies[-1]) > 0.95


@pytest.mark.nightly
def test_the_classifier_learns_and_is_exported(run_python, tmp_path):
    program = "import runpy, sys; runpy.run_path(sys.argv[1])['main'](sys.argv[2], epochs=2)"
    printed = run_python(program, EXAMPLES / "sentence_classifier.py", tmp_path)
    assert re.search(r"accuracy: (0\.9\d+|1\.0+) .*: 0\.5", printed)
    assert len(re.findall(r"export/(saved_model|onnx): 22[34] of 224 sentences equal", printed)) == 2
    assert {path.name for path in (tmp_path / "export").iterdir()} == {"saved_model", "onnx", "verification.json"}
    assert (tmp_path / "model.keras").is_file()


def lines_of(picture):
    """The words of each line of text in a picture by rich."""
    lines = collections.defaultdict(list)
    for number, text in re.findall(r'line-(\d+)\)">([^<]*)</text>', picture):
        lines[int(number)] += html.unescape(text).split()
    return [lines[number] for number in sorted(lines) if lines[number]]


def test_the_picture_shows_what_the_quickstart_prints():
    """Ten held-out numbers, each with the right translation, given by all runtimes. Times may differ."""
    given = lines_of((EXAMPLES.parent / "docs" / "images" / "quickstart.svg").read_text(encoding="utf-8"))
    numbers = random.Random(0).sample(range(1_000_000), 42_000)[-1000:]
    spelled = {num2words.num2words(number): num2words.num2words(number, lang="de") for number in numbers}
    rows = [" ".join(line).removesuffix(" all 5").rsplit(" ", 1) for line in given if line[-2:] == ["all", "5"]]
    assert len(rows) == 10 and all(spelled[english] == german for english, german in rows)

    quickstart = runpy.run_path(str(EXAMPLES / "quickstart.py"))
    console = rich.console.Console(width=150, record=True, file=io.StringIO())
    (runtimes,) = ([name.strip(",") for name in line[1:]] for line in given if line[0] == "runtimes:")
    assert set(runtimes) == {"keras", "saved_model", "onnx", "onnx_int8", "ctranslate2"}
    (score,) = (float(line[6]) / 100 for line in given if line[0] == "exact")
    (seconds,) = ((float(line[2]), float(line[6])) for line in given if line[0] == "training")
    lines, translated = zip(*rows, strict=True)
    quickstart["report"](
        console,
        ModelDirectory("runs/quickstart"),
        lines,
        dict.fromkeys(runtimes, translated),
        types.SimpleNamespace(sentences=500, exact_match=score),
        seconds,
    )
    assert given == lines_of(console.export_svg(title="make quickstart"))


def test_the_configurations_are_found():
    assert {path.stem for path in CONFIGURATIONS} == {
        "multi30k",
        "multi30k-tokenized",
        "iwslt",
        "wmt14-base",
        "wmt14-big",
        "reverse",
        "parallel",
        "mixed",
        "forward",
        "backward",
        "diversified",
        "teacher",
        "student",
        "scorer",
        "model",
        "four-languages",
    }


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda path: path.stem)
def test_a_configuration_is_printed_completely(configuration, capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", f"--config={configuration}", "--print_config"])
    printed, given = yaml.safe_load(capsys.readouterr().out), yaml.safe_load(configuration.read_text())
    assert {"recipe", "model", "prepared" if "prepared" in given else "tokenizer"} <= given.keys() <= printed.keys()
    assert contains(printed, given)


def contains(whole, part):
    """Whether mappings have all entries of others, at any depth."""
    if isinstance(part, dict):
        return all(name in whole and contains(whole[name], value) for name, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # From TensorFlow Datasets.
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda path: path.stem)
def test_a_configuration_lacks_its_data_only(configuration, tmp_path, monkeypatch, capsys):
    def download_and_prepare(self, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr("tensorflow_datasets.core.DatasetBuilder.download_and_prepare", download_and_prepare)
    monkeypatch.chdir(tmp_path)
    assert main(["train", f"--config={configuration}", "--output=run"]) == 2
    lacking = r"(train|dev)\S*: No such file|tokens/(rules|cleaned)|'(wmt14|number_words)\S* [^:]*: no route"
    assert re.search(lacking, capsys.readouterr().err)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "dropout", "updates", "averaged"), [("base", 0.1, 100_000, 5), ("big", 0.3, 300_000, 20)]
)
def test_the_settings_are_those_of_the_paper(name, dropout, updates, averaged):
    given = yaml.safe_load((EXAMPLES / f"wmt14-{name}.yaml").read_text())
    built = ModelConfig(**given["model"]).transformer(vocab_size=given["tokenizer"]["vocab_size"])
    assert built == TransformerConfig.preset(name, vocab_size=37_000) and built.dropout == dropout
    recipe = RecipeConfig(**given["recipe"])
    assert (recipe.max_steps, recipe.keep_checkpoints, recipe.weights) == (updates, averaged, "average")
    assert (recipe.warmup_steps, recipe.label_smoothing, recipe.peak_learning_rate) == (4000, 0.1, None)


@pytest.fixture
def run_script(toy_files, tmp_path, monkeypatch):
    """Runs the script of an example with a tiny model, in a folder with text. Returns what it prints."""
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for name, side in itertools.product(("train", "crawled", "dev", "test"), ("en", "de")):
        shutil.copy(toy_files / f"{'test' if name in ('dev', 'test') else 'train'}.{side}", tmp_path / f"{name}.{side}")

    def run(example, *options):
        tiny = ["--model.d_model=16", "--model.d_ff=16", "--recipe.max_steps=20", "--recipe.warmup_steps=5"]
        script = ["sh", EXAMPLES / example / "run.sh", *tiny, *options]
        return subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True)

    return run


# The second call finds everything finished, and evaluates once more.


@pytest.mark.nightly
def test_the_back_translation_example_runs_twice(run_script, toy_files, tmp_path):
    shutil.copy(toy_files / "train.de", tmp_path / "mono.de")
    for _ in range(2):
        printed = run_script("back-translation", "--tokenizer.vocab_size=300").stdout
        assert "runs/mixed" in printed and "BLEU" in printed
    assert len((tmp_path / "back-translated.en").read_text().splitlines()) == 300


@pytest.mark.nightly
def test_the_diversification_example_runs_twice(run_script, tmp_path):
    for _ in range(2):
        printed = run_script("diversification", "--tokenizer.vocab_size=300").stdout
        assert "runs/diversified" in printed and "BLEU" in printed
    translated = (tmp_path / "runs/backward-text/train.target.txt").read_text().splitlines()
    assert set(translated) - set((tmp_path / "train.en").read_text().splitlines())  # The backward model wrote them.


@pytest.mark.nightly
def test_the_cleaning_example_runs_twice(run_script, tmp_path):
    for number in range(2):
        completed = run_script("cleaning")
        assert "BLEU" in completed.stdout and ("cleaning.min_score: " in completed.stderr) is (number == 0)
    assert "score\t" in (tmp_path / "rejected.tsv").read_text(encoding="utf-8")


@pytest.mark.nightly
def test_the_student_example_runs_twice(run_script, arguments, tmp_path):
    assert main(arguments(tmp_path / "runs/teacher")) == 0
    for _ in range(2):
        printed = run_script("student", "--tokenizer.vocab_size=300").stdout
        assert "student.de" in printed and "BLEU" in printed
    verification = json.loads((tmp_path / "runs/student/export/verification.json").read_text(encoding="utf-8"))
    assert verification["onnx_int8"]["search"]["shortlist"]
