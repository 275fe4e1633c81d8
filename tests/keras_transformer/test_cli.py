import subprocess
import sys

import pytest
import yaml

from keras_transformer.cli import COMMANDS, main
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.training.config import TrainConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Of TensorFlow Datasets and of NumPy 2.


@pytest.fixture
def files(tmp_path):
    """A folder with `a` and `b` of 120 lines, `short` of 119, `empty`, and nothing called `none`."""
    for name, count in (("a", 120), ("b", 120), ("short", 119), ("empty", 0)):
        (tmp_path / name).write_text("".join(f"line number {i}\n" for i in range(count)))
    return tmp_path


def refused(capsys, *arguments):
    """The message with which the command line refuses these arguments, and its exit status 2."""
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    return captured.err


FILES = ["--source={files}/a", "--target={files}/b"]
BAD_TRAINING = {
    "files of different length": (
        ["--source={files}/a", "--target={files}/short"],
        "Files do not align: {files}/a has 120 lines, {files}/short has 119",
    ),
    "empty file": (["--source={files}/empty", "--target={files}/empty"], "{files}/empty is empty"),
    "missing file": (["--source={files}/a", "--target={files}/none"], "Cannot read {files}/none: No such file"),
    "one side only": (["--source={files}/a"], "`source` and `target` must name as many files. Received: 1 and 0"),
    "unknown dataset": (
        ["--dataset=no_such_dataset", "--data_dir={files}/tfds"],
        "Unknown TensorFlow dataset. Received: dataset='no_such_dataset'",
    ),
    "vocabulary too large": (FILES, "for this text. Received: vocab_size=8000"),
    "nothing left of the data": (
        [*FILES, "--tokenizer.vocab_size=290", "--max_length=2"],
        "No pairs of the train text are left to use: 0 of 119 pairs used; left out: 0 with an empty side, 119 too long",
    ),
    "odd d_model": (
        [*FILES, "--model.d_model=63", "--model.num_heads=3"],
        "`d_model` must be even. Received: d_model=63",
    ),
    "several faults at once": ([*FILES, "--model.d_ff=0", "--model.dropout=1"], "`dropout` must be in [0, 1)"),
    "unknown preset": ([*FILES, "--model.preset=huge"], "Received: preset='huge'"),
    "unknown option": ([*FILES, "--modle.d_ff=3"], "--modle.d_ff"),
    "no number": ([*FILES, "--recipe.epochs=many"], "recipe.epochs"),
    "unknown precision": ([*FILES, "--recipe.precision=int8"], "recipe.precision"),
    "no such device": ([*FILES, "--devices=GPU:9"], "Received: GPU:9"),
    "init_from is no model": (["--init_from={files}", *FILES], "Not a model directory: {files}"),
    "config file is missing": (["--config={files}/none.yaml"], "none.yaml"),
    "nested output in a file": ([*FILES, "--tokenizer.vocab_size=290", "--output={files}/a/run"], "{files}/a"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_TRAINING.values(), ids=BAD_TRAINING)
def test_bad_training(files, capsys, arguments, message):
    before = sorted(files.iterdir())
    arguments = [argument.format(files=files) for argument in arguments]
    assert message.format(files=files) in refused(capsys, "train", "--output", files / "run", *arguments)
    assert sorted(files.iterdir()) == before


def test_no_network(files, capsys, monkeypatch):
    import tensorflow_datasets as tfds

    def download_and_prepare(self, **kwargs):
        raise ConnectionError("Failed to resolve 'data.statmt.org'")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download_and_prepare)
    arguments = ["--dataset=wmt14_translate/de-en", "--data_dir", files / "tfds", "--output", files / "run"]
    message = "The data of 'wmt14_translate/de-en' cannot be had: Failed to resolve 'data.statmt.org'"
    assert message in refused(capsys, "train", *arguments)
    assert not (files / "run").exists()


def test_an_output_that_is_something_else(files, capsys):
    (files / "run").mkdir()
    (files / "run" / "thesis.tex").touch()
    message = refused(capsys, "train", "--output", files / "run", "--overwrite")
    assert f"{files}/run is not empty and is no model directory" in message
    assert [file.name for file in (files / "run").iterdir()] == ["thesis.tex"]


def test_output_is_required(capsys):
    assert "output" in refused(capsys, "train")


@pytest.mark.parametrize("command", ["translate", "evaluate", "export", "score"])
def test_no_model_directory(command, files, capsys):
    others = {"evaluate": "--reference", "score": "--target"}
    options = ["--source", files / "a", others[command], files / "b"] if command in others else []
    assert f"Not a model directory: {files} (no config.yaml)" in refused(capsys, command, files, *options)


@pytest.mark.parametrize("command", ["translate", "export"])
def test_a_truncated_weight_file(command, files, capsys):
    from keras_transformer import Transformer, TransformerConfig
    from keras_transformer.tokenization import TokenizerConfig, train_sentencepiece

    directory = ModelDirectory(files / "run")
    directory.write_record({}, finished=True)
    directory.write_tokenizers((train_sentencepiece(["some text"], TokenizerConfig(vocab_size=268)),))
    Transformer(TransformerConfig(vocab_size=268, num_layers=1, d_model=8, num_heads=1)).save(directory.model_file)
    directory.model_file.write_bytes(directory.model_file.read_bytes()[:3000])
    assert f"Not a whole Keras model: {directory.model_file}" in refused(capsys, command, directory.path)
    assert not directory.export.exists()


BAD_OPTIONS = {
    "unknown format": (["export", "--format=tflite"], "`format` must be among saved_model, onnx"),
    "beam of nothing": (["export", "--beam_size=0"], "`beam_size` must be at least 1. Received: beam_size=0"),
    "unknown runtime": (["translate", "--runtime=tf"], "runtime"),
    "no references": (["evaluate", "--source=text"], "reference"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options(arguments, message, files, capsys):
    command, *options = arguments
    assert message in refused(capsys, command, files, *options)


def test_unknown_command(capsys):
    assert refused(capsys, "trian").startswith("unknown command: trian\n\nusage: keras-transformer COMMAND")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help(capsys, arguments):
    assert main(arguments) == 0
    usage = capsys.readouterr().out
    assert all(f"  {name} " in usage for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert COMMANDS[command].__doc__ in " ".join(capsys.readouterr().out.split())


def test_an_interruption_is_no_traceback(monkeypatch):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "train", interrupt)
    assert main(["train"]) == 130


def test_a_printed_config_gives_the_same_run(files, capsys, monkeypatch):
    options = ["--source", files / "a", "--target", files / "b", "--model.d_ff=77", "--recipe.epochs=3"]
    with pytest.raises(SystemExit) as caught:
        main(["train", "--output=run", *map(str, options), "--print_config"])
    assert caught.value.code in (0, None)
    text = capsys.readouterr().out
    printed = yaml.safe_load(text)
    assert (printed["model"]["d_ff"], printed["recipe"]["epochs"], printed["max_length"]) == (77, 3, 256)
    (files / "run.yaml").write_text(text)

    def run(config):
        configs.append(config)
        return ModelDirectory(config.output)

    configs = []
    monkeypatch.setattr("keras_transformer.training.train.train", run)
    assert main(["train", "--config", str(files / "run.yaml"), "--recipe.epochs=4"]) == 0
    assert main(["train", "--output=run", *map(str, options), "--recipe.epochs=4"]) == 0
    assert isinstance(configs[0], TrainConfig)
    assert configs[0] == configs[1] and configs[0].recipe.epochs == 4


def test_parsing_imports_no_tensorflow():
    program = "import sys; from keras_transformer import cli; cli.main([]); print('tensorflow' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "False"
