import dataclasses
import os
import re
import subprocess
import sys

import pytest
import yaml

import keras_transformer
from keras_transformer.cli import COMMANDS, main
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.training.config import ModelConfig, TrainConfig

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
        "120 lines in {files}/a, 119 in {files}/short",
    ),
    "empty file": (["--source={files}/empty", "--target={files}/empty"], "{files}/empty is empty"),
    "missing file": (["--source={files}/a", "--target={files}/none"], "{files}/none: No such file"),
    "one side only": (["--source={files}/a"], "Received: 1 and 0"),
    "unknown dataset": (
        ["--dataset=no_such_dataset", "--data_dir={files}/tfds"],
        "Received: dataset='no_such_dataset'",
    ),
    "vocabulary too large": ([*FILES, "--tokenizer.vocab_size=8000"], "Received: vocab_size=8000"),
    "nothing left of the data": (
        [*FILES, "--tokenizer.vocab_size=290", "--max_length=2"],
        "train: 0 of 119 pairs used; removed: 0 with an empty side, 119 too long",
    ),
    "odd d_model": (
        [*FILES, "--model.d_model=63", "--model.num_heads=3"],
        "Received: d_model=63",
    ),
    "several faults at once": ([*FILES, "--model.d_ff=0", "--model.dropout=1"], "Received: dropout=1"),
    "unknown preset": ([*FILES, "--model.preset=huge"], "Received: model.preset='huge'"),
    "unknown option": ([*FILES, "--modle.d_ff=3"], "--modle.d_ff=3. Did you mean --model.d_ff?"),
    "abbreviated option": ([*FILES, "--recipe.epoch=3"], "--recipe.epoch=3. Did you mean --recipe.epochs?"),
    "no number": ([*FILES, "--recipe.epochs=many"], "`--recipe.epochs` must be an integer. Received: many"),
    "neither a number nor null": ([*FILES, "--model.dropout=yes"], "`--model.dropout` must be a number. Received: yes"),
    "unknown precision": (
        [*FILES, "--recipe.precision=int8"],
        "'float32', 'mixed_float16', 'mixed_bfloat16'. Received: int8",
    ),
    "no such device": ([*FILES, "--devices=GPU:9"], "Received: devices=GPU:9"),
    "init_from is no model": (["--init_from={files}", *FILES], "{files} (no config.yaml)"),
    "config file is missing": (["--config={files}/none.yaml"], "none.yaml"),
    "nested output in a file": ([*FILES, "--tokenizer.vocab_size=290", "--output={files}/a/run"], "{files}/a"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_TRAINING.values(), ids=BAD_TRAINING)
def test_train_refuses_bad_options_and_writes_nothing(files, capsys, arguments, message):
    before = sorted(files.iterdir())
    arguments = [argument.format(files=files) for argument in arguments]
    assert message.format(files=files) in refused(capsys, "train", "--output", files / "run", *arguments)
    assert sorted(files.iterdir()) == before


def test_a_missing_network_is_explained(files, capsys, monkeypatch):
    import tensorflow_datasets as tfds

    def download_and_prepare(self, **kwargs):
        raise ConnectionError("Failed to resolve 'data.statmt.org'")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download_and_prepare)
    arguments = ["--dataset=wmt14_translate/de-en", "--data_dir", files / "tfds", "--output", files / "run"]
    message = refused(capsys, "train", *arguments)
    assert "'wmt14_translate/de-en'" in message and "Failed to resolve 'data.statmt.org'" in message
    assert not (files / "run").exists()


def test_an_output_that_is_something_else(files, capsys):
    (files / "run").mkdir()
    (files / "run" / "thesis.tex").touch()
    message = refused(capsys, "train", "--output", files / "run", "--overwrite")
    assert re.search(f"{files}/run .*not empty.*no config.yaml", message)
    assert [file.name for file in (files / "run").iterdir()] == ["thesis.tex"]


def test_output_is_required(capsys):
    assert re.fullmatch("keras-transformer train: error: .*missing.* --output\n", refused(capsys, "train"))


def test_an_unknown_key_of_a_config_file_is_refused(files, capsys):
    (files / "run.yaml").write_text("recipe:\n  epoch: 3\n")
    message = refused(capsys, "train", "--output=run", "--config", files / "run.yaml")
    assert "recipe.epoch. Did you mean --recipe.epochs?" in message


WRONG_KINDS = {
    "recipe: 3": "`--recipe` must be a mapping. Received: 3",
    "model: [1]": "`--model` must be a mapping. Received: [1]",
    "tokenizer: null": "`--tokenizer` must be a mapping. Received: null",
    "augmentation: x": "`--augmentation` must be a mapping of options, or a YAML file with them. Received: x",
    "recipe: {epochs: {a: 1}}": "`--recipe.epochs` must be an integer. Received: {'a': 1}",
    "recipe: {epochs: {a: {b: 1}}}": "`--recipe.epochs` must be an integer. Received: {'a': {'b': 1}}",
    "recipe: {label_smoothing: null}": "`--recipe.label_smoothing` must be a number. Received: null",
    "recipe: {schedule: null}": "`--recipe.schedule` must be inverse_sqrt or cosine. Received: null",
    "max_length: null": "`--max_length` must be an integer. Received: null",
    "tokenizer: {shared: null}": "`--tokenizer.shared` must be true or false. Received: null",
    "overwrite: 3": "`--overwrite` must be true or false. Received: 3",
    "corpora: 3": "`--corpora` must be a mapping of names to options. Received: 3",
    "corpora: {a: 3}": "`--corpora` must be a mapping of names to options. Received: {'a': 3}",
    "max_length_ratio: .nan": "`max_length_ratio` must be at least 1. Received: max_length_ratio=nan",
    "corpora: {a: {train_split: null, dataset: x}}": "corpora.a.train_split must not be null",
    "corpora: {1: {}}": "corpora.1: a name must consist of letters",
    "corpora: {a: {zz: {b: 1}}}": "unknown option in `--corpora`: zz.b",
    "corpora: {a: {weight: x}}": "`corpora.….weight` must be a number. Received: {'a': {'weight': 'x'}}",
    "stages: {a: 1}": "`--stages` must be a list of mappings of options. Received: {'a': 1}",
    "stages: [null]": "`--stages` must be a list of mappings of options. Received: [None]",
    "stages: [{}]": "`--stages` requires weights",
    "stages: [{weights: 3}]": "`stages.….weights` must be a mapping. Received: [{'weights': 3}]",
    "3": "The file of `--config` must hold a mapping of options. Received: 3",
    "a: [": "The file of `--config` must hold a mapping of options. Received: while parsing",
    "1: 2": "Names of options must be text. Received: 1",
    "a: &x [*x]": "The file of `--config` must not refer to itself",
}


@pytest.mark.parametrize("text", WRONG_KINDS)
def test_a_value_of_the_wrong_kind_in_a_config_file_is_refused(text, files, capsys, monkeypatch):
    monkeypatch.setattr("keras_transformer.training.start.train", lambda config: None)
    (files / "run.yaml").write_text(text)
    assert WRONG_KINDS[text] in refused(capsys, "train", "--output=run", "--config", files / "run.yaml")


@pytest.mark.parametrize(("command", "text"), [("prepare", "cleaning: 3"), ("distill", "cleaning: 3")])
def test_a_group_of_the_wrong_kind_is_refused_in_other_commands(command, text, files, capsys, monkeypatch):
    monkeypatch.setattr("keras_transformer.training.data.prepare.prepare", lambda config: None)
    (files / "run.yaml").write_text(text)
    options = ["--teacher=t", "--source=s"] if command == "distill" else []
    message = refused(capsys, command, "--output=run", *options, "--config", files / "run.yaml")
    assert message == f"keras-transformer {command}: error: `--cleaning` must be a mapping. Received: 3\n"


def test_an_error_of_the_file_system_is_one_line(capsys, monkeypatch):
    def fail(arguments):
        raise PermissionError(13, "Permission denied", "runs/x")

    monkeypatch.setitem(COMMANDS, "train", fail)
    assert re.fullmatch("keras-transformer train: error: .*runs/x: permission denied\n", refused(capsys, "train"))


@pytest.mark.parametrize("command", COMMANDS)
def test_too_little_memory_names_options_to_lower(command, capsys, monkeypatch):
    def fail(arguments):
        raise MemoryError

    with pytest.raises(SystemExit):
        main([command, "--help=all" if command == "train" else "--help"])
    known = set(re.findall(r"--[\w.]+", capsys.readouterr().out))
    monkeypatch.setitem(COMMANDS, command, fail)
    message = refused(capsys, command)
    assert re.fullmatch(f"keras-transformer {command}: error: Not enough memory: .*\n", message)
    assert set(re.findall(r"--[\w.]+", message)) <= known


@pytest.mark.parametrize("command", ["translate", "evaluate", "export", "score"])
def test_a_folder_without_a_model_is_refused(command, files, capsys):
    others = {"evaluate": "--reference", "score": "--target"}
    options = ["--source", files / "a", others[command], files / "b"] if command in others else []
    assert f"{files} (no config.yaml)" in refused(capsys, command, files, *options)


@pytest.mark.parametrize("command", ["translate", "export"])
def test_a_truncated_weight_file_is_refused(command, files, capsys):
    from keras_transformer import Transformer, TransformerConfig
    from keras_transformer.text.tokenization import TokenizerConfig, train_sentencepiece

    directory = ModelDirectory(files / "run")
    directory.write_record({}, finished=True)
    directory.write_tokenizers((train_sentencepiece(["some text"], TokenizerConfig(vocab_size=268)),))
    Transformer(TransformerConfig(vocab_size=268, num_layers=1, d_model=8, num_heads=1)).save(directory.model_file)
    directory.model_file.write_bytes(directory.model_file.read_bytes()[:3000])
    assert f"Keras model: {directory.model_file}" in refused(capsys, command, directory.path)
    assert not directory.export.exists()


BAD_OPTIONS = {
    "unknown format": (["export", "--format=tflite"], "Received: format='tflite'"),
    "beam of nothing": (["export", "--beam_size=0"], "Received: beam_size=0"),
    "unknown runtime": (["translate", "--runtime=tf"], "runtime"),
    "no references": (["evaluate", "--source=text"], "reference"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_refused(arguments, message, files, capsys):
    command, *options = arguments
    assert message in refused(capsys, command, files, *options)


def test_an_unknown_command_is_refused_with_a_suggestion(capsys):
    message = refused(capsys, "trian")
    assert "trian. Did you mean train?" in message and "usage: keras-transformer COMMAND" in message


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["help"]])
def test_help_lists_the_commands(capsys, arguments):
    assert main(arguments) == 0
    usage = capsys.readouterr().out
    assert all(f"  {name} " in usage for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_describes_it(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert COMMANDS[command].__doc__ in without_types(capsys)


@pytest.mark.parametrize(("chosen", "expected"), [({}, "0"), ({"TF_ENABLE_ONEDNN_OPTS": "1"}, "1")])
@pytest.mark.parametrize("command", ["export", "import"])
def test_tensorflow_keeps_no_memory_pool(command, chosen, expected):
    report = "print(os.environ['TF_ENABLE_ONEDNN_OPTS'], 'tensorflow' in sys.modules)"
    call = f"try: main(['{command}', '--help'])\nfinally: {report}"
    program = f"import os, sys\nfrom keras_transformer.cli import main\n{call}"
    inherited = {name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"}
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, env=inherited | chosen, text=True)
    assert done.stdout.splitlines()[-1] == f"{expected} False"  # Set before TensorFlow is imported.


def without_types(capsys) -> str:
    """The printed help. It names no types of Python."""
    text = " ".join(capsys.readouterr().out.split())
    assert not re.search(r"type: (?:[^),]*\b)?(int|float|str|bool|null|Literal|Union|Optional|\w+Int)\b", text)
    assert "default: True" not in text and "default: False" not in text
    return text


HELP = {
    "--help": ({"--output", "--source", "--prepared", "--model.preset"}, {"--model.d_ff", "--recipe.seed"}),
    "--help=model": ({"--model.preset", "--model.d_ff"}, {"--source", "--recipe.epochs"}),
    "--help=augmentation": ({"--augmentation.typos"}, {"--source", "--recipe.epochs"}),
    "--help=all": ({"--output", "--model.d_ff", "--recipe.seed", "--num_buckets"}, set()),
}


@pytest.mark.parametrize("option", HELP)
def test_help_is_shown_by_groups(option, capsys):
    with pytest.raises(SystemExit):
        main(["train", option])
    shown = set(re.sub(r"[\[\],]", " ", without_types(capsys)).split())  # Python 3.13 writes "--source, --source+".
    wanted, hidden = HELP[option]
    assert wanted <= shown and not hidden & shown


def test_every_option_of_the_model_has_help(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help=model"])
    text = " ".join(capsys.readouterr().out.partition("model options")[2].split())
    assert "`tiny` (2 layers" in text
    helps = re.split(r"--model\.\w+ [A-Z_]+|--model\.\w+ \{[\w,]+\}", text)[1:]
    assert len(helps) == len(dataclasses.fields(ModelConfig))
    assert not [help for help in helps if help.strip().startswith("(type")]


def test_help_names_a_command(capsys):
    with pytest.raises(SystemExit):
        main(["help", "average"])
    assert capsys.readouterr().out.startswith("usage: keras-transformer average")


def test_the_version_is_printed(capsys, run_python):
    for option in ("--version", "-V"):
        assert main([option]) == 0
        assert capsys.readouterr().out == f"keras-transformer {keras_transformer.__version__}\n"
    program = "import runpy, sys; sys.argv[1:] = ['-V']; runpy.run_module('keras_transformer', run_name='__main__')"
    assert run_python(program) == f"keras-transformer {keras_transformer.__version__}\n"


def test_a_number_that_must_be_positive(capsys):
    assert main(["shortlist", "none", "--source=a", "--target=b", "--width=0"]) == 2
    assert "`--width` must be an integer of at least 1. Received: 0" in capsys.readouterr().err


def test_an_interruption_is_no_traceback(monkeypatch):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "train", interrupt)
    assert main(["train"]) == 130


@pytest.mark.parametrize("value", ["none", "exact", "near"])
def test_a_value_of_a_choice_is_text_in_yaml(value, files, capsys):
    (files / "run.yaml").write_text(f"cleaning: {{duplicates: {value}}}")
    with pytest.raises(SystemExit, match="0"):
        main(["prepare", f"--config={files / 'run.yaml'}", "--output=tokens", "--print_config"])
    assert yaml.safe_load(capsys.readouterr().out)["cleaning"]["duplicates"] == value


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
    monkeypatch.setattr("keras_transformer.training.start.train", run)
    assert main(["train", "--config", str(files / "run.yaml"), "--recipe.epochs=4"]) == 0
    assert main(["train", "--output=run", *map(str, options), "--recipe.epochs=4"]) == 0
    assert isinstance(configs[0], TrainConfig)
    assert configs[0] == configs[1] and configs[0].recipe.epochs == 4


def test_parsing_imports_no_tensorflow():
    program = "import sys; from keras_transformer import cli; cli.main([]); print('tensorflow' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "False"
