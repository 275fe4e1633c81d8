"""Models with layers of the user: `--import` names the module that registers them."""

import re
import shutil
import subprocess
import sys

import keras
import pytest

from keras_transformer import LanguageModel, Transformer, TransformerConfig, load_model
from keras_transformer.cli import main
from keras_transformer.cli.commands import COMMANDS
from keras_transformer.layers import CausalDecoderLayer, EncoderLayer

MODULE = """
import keras

@keras.saving.register_keras_serializable(package="mine")
class Doubling(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs
"""


@pytest.fixture
def doubling(tmp_path, monkeypatch):
    """A layer whose class is in a module of the current folder, and not registered in this process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_layers.py").write_text(MODULE)
    found = {}
    exec(MODULE, found)
    yield found["Doubling"]()
    keras.saving.get_custom_objects().pop("mine>Doubling", None)
    sys.modules.pop("my_layers", None)


def forget():
    del keras.saving.get_custom_objects()["mine>Doubling"]


@pytest.fixture
def directory(doubling, golden, tmp_path):
    """A model directory whose encoder has such a layer."""
    path = tmp_path / "model"
    shutil.copytree(golden("0.2.0.dev1") / "model", path, ignore=shutil.ignore_patterns("export"))
    sizes = load_model(path / "model.keras", compile=False).config
    block = EncoderLayer(sizes.d_model, sizes.num_heads, feed_forward=doubling)
    Transformer(sizes, encoder_layer=block).save(path / "model.keras")
    forget()
    return path


@pytest.mark.nightly
def test_translate_and_export_import_the_module(directory, command):
    for arguments in (["translate", directory], ["export", directory, "--format=saved_model", "--extra_length=2"]):
        for options, status in ([], 2), (["--import=my_layers"], 0):
            done = subprocess.run(
                [*command, *map(str, arguments), *options], input="eins zwei\n", capture_output=True, text=True
            )
            assert done.returncode == status, done.stderr
            assert ("--import MODULE" in done.stderr) == bool(status) and "Traceback" not in done.stderr
    assert (directory / "export" / "saved_model").exists()


def test_a_class_that_is_not_registered_is_named(doubling, tmp_path):
    config = TransformerConfig(vocab_size=11, num_layers=1, d_model=8, num_heads=2, d_ff=13)
    path = tmp_path / "model.keras"
    LanguageModel(config, CausalDecoderLayer(8, 2, feed_forward=doubling)).save(path)
    forget()
    with pytest.raises(
        ValueError, match=r"class Doubling must be imported before .*model\.keras is loaded.*`--import MODULE`"
    ):
        load_model(path)
    with pytest.raises(SystemExit):
        main(["translate", "--import=my_layers", "--help"])
    assert main(["translate", str(tmp_path / "none"), "--import=my_layers"]) == 2
    assert load_model(path).decoder.layers[0].feed_forward.sublayer.name == "doubling"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module", "Received: no_such_module (ModuleNotFoundError: No module named 'no_such_module')"),
        ("broken", "Received: broken (SyntaxError: "),
        ("failing", "Received: failing (KeyError: 'a')"),
        (".relative", "Received: .relative (TypeError: "),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(name, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("x =")
    (tmp_path / "failing.py").write_text("{}['a']")
    assert main(["translate", "none", "--import=json", "--import", name]) == 2
    assert f"error: `--import` must name a module that can be imported. {message}" in capsys.readouterr().err


def test_a_file_of_options_names_modules(tmp_path, capsys):
    for value, message in (("[none_1, json]", "Received: none_1"), ("none_2", "Received: none_2"), ("3", "names.*3")):
        (tmp_path / "run.yaml").write_text(f"import: {value}\n")
        assert main(["train", f"--output={tmp_path / 'run'}", f"--config={tmp_path / 'run.yaml'}"]) == 2
        assert re.search(message, capsys.readouterr().err)


def test_every_command_that_loads_a_model_has_the_option(capsys):
    having = set()
    for name, run in COMMANDS.items():
        with pytest.raises(SystemExit):
            run(["--help=all"] if name == "train" else ["--help"])
        having |= {name} if "--import MODULE" in capsys.readouterr().out else set()
    assert having == COMMANDS.keys() - {"prepare", "shortlist", "import", "doctor"}
