import json
import pathlib
import re

import pytest

from keras_transformer.cli import main
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data.processes import WorkerProcesses
from keras_transformer.training.mixture_config import CorpusConfig
from keras_transformer.training.start import check_run
from keras_transformer.training.stopping import WorkerStopped


@pytest.fixture
def corpora(toy_files):
    files = {"source": str(toy_files / "train.en"), "target": str(toy_files / "train.de")}
    return {"clean": files, "back-translated": {**files, "tag": "<bt>"}}


@pytest.fixture
def mixed(arguments, corpora, tmp_path):
    """The arguments of a training on several corpora."""

    def mixed(output=None, **changes):
        files = {"source": None, "target": None, "corpora": json.dumps(corpora)}
        return arguments(output or tmp_path / "run", **{**files, **changes})

    return mixed


@pytest.mark.nightly
def test_a_run_says_what_it_trains_on(mixed, tmp_path, capsys):
    stages = [{"weights": {"clean": 3, "back-translated": 1}, "epochs": 0.5, "of": "clean"}, {"weights": {"clean": 1}}]
    assert main(mixed(stages=json.dumps(stages))) == 0
    said = capsys.readouterr().err
    assert "training pairs of clean: 297 of 297" in said and "training pairs of back-translated: 300 of 300" in said
    assert "pairs trained on: clean" in said and "back-translated 50 (" in said
    assert "<bt>" in (tmp_path / "run" / "tokenizer.model").read_bytes().decode("latin-1")
    assert not (tmp_path / "run" / "tokens").exists()


@pytest.mark.nightly
@pytest.mark.filterwarnings("default:The training ends")
def test_stages_that_are_not_reached_are_named(mixed, capsys):
    stages = [{"weights": {"clean": 1}, "epochs": 1000}, {"weights": {"back-translated": 1}}]
    assert main(mixed(stages=json.dumps(stages))) == 0
    printed = capsys.readouterr().err
    assert re.search(r"stage 2 starts after about [\d,]+ steps", printed)
    assert re.search(r"warning: The training ends after [\d,]+ steps, before stage 2 of `stages` starts", printed)


@pytest.mark.nightly
def test_a_process_that_stops_ends_the_training_with_a_message(mixed, monkeypatch, capsys):
    def stopped(self, future):
        raise WorkerStopped

    monkeypatch.setattr(WorkerProcesses, "result", stopped)
    assert main(mixed()) == 1
    printed = capsys.readouterr().err.splitlines()[-1]
    assert printed.startswith("keras-transformer train: a process that prepares data has stopped")


def test_a_corpus_may_have_few_lines(corpora, tmp_path):
    """Nothing is held out of it, because the first corpus is validated on."""
    for side, path in corpora["clean"].items():
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines(keepends=True)[:5]
        (tmp_path / side).write_text("".join(lines), encoding="utf-8")
    corpora["terms"] = {side: str(tmp_path / side) for side in ("source", "target")}
    check_run(TrainConfig(output=str(tmp_path / "run"), corpora={n: CorpusConfig(**c) for n, c in corpora.items()}))
    few = {name: CorpusConfig(**corpora[name]) for name in ("terms", "clean")}
    with pytest.raises(ValueError, match="fewer than 100 lines. Received: 5 lines"):
        check_run(TrainConfig(output=str(tmp_path / "run"), corpora=few))
    validation = {f"validation_{side}": path for side, path in corpora["clean"].items()}
    check_run(TrainConfig(output=str(tmp_path / "run"), corpora=few, **validation))


@pytest.mark.nightly
def test_prepared_corpora_are_mixed_by_stages(mixed, arguments, corpora, tmp_path, capsys):
    tokens = tmp_path / "tokens"
    command = ["prepare", "--output", str(tokens), "--corpora", json.dumps(corpora), "--tokenizer.vocab_size=300"]
    assert main(command) == 0
    directory = TokenDirectory(tokens)
    assert directory.train_splits == ["train.clean", "train.back-translated"]
    source, _ = directory.sides("train.back-translated")
    assert {row[0] for row in source.lists()} == {directory.tags["train.back-translated"]}
    prepared = {"source": None, "target": None, "prepared": tokens, "tokenizer.vocab_size": None, "max_length": None}
    one = json.dumps([{"weights": {"back-translated": 1}}])
    assert main(arguments(tmp_path / "run", **prepared, stages=one)) == 0
    assert "clean 0 (0%, 0.00 epochs)" in capsys.readouterr().err
    assert main(arguments(tmp_path / "other", **prepared, stages=json.dumps([{"weights": {"web": 1}}]))) == 2
    assert "there is no corpus 'web'" in capsys.readouterr().err and not (tmp_path / "other").exists()
    assert main(arguments(tmp_path / "other", **prepared, num_buckets=3)) == 2
    assert "which require packing. Received: num_buckets=3" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    files = [f"--{side}={path}" for side, path in corpora["clean"].items()]
    assert main(["prepare", "--output", str(tokens), *files, "--tokenizer.vocab_size=300", "--overwrite"]) == 0
    assert not [path for path in tokens.iterdir() if "clean" in path.name or "back" in path.name]


@pytest.mark.slow
def test_corpora_are_cleaned_one_by_one(corpora, tmp_path, capsys):
    tokens, source = tmp_path / "tokens", corpora["clean"]["source"]
    corpora["copied"] = {"source": source, "target": source}
    command = ["prepare", "--output", str(tokens), "--tokenizer.vocab_size=300", "--clean"]
    assert main([*command, "--corpora", json.dumps(corpora)]) == 2
    error = capsys.readouterr().err
    assert "train.copied: 0 of 300 pairs kept" in error and "train.clean: " not in error and not tokens.exists()
    assert main([*command, "--corpora", json.dumps(corpora), "--cleaning.copies=false"]) == 0
    assert "cleaning of train.copied: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--init_from=nowhere"], "nowhere"),
        (["--cleaning.model=nowhere", "--cleaning.min_score=0.1"], "nowhere"),
        (["--cleaning.model=nowhere"], "`cleaning.min_score` must be given if the validation text is held out"),
        (["--init_from={model_directory}"], "must contain the tag <bt>"),
    ],
)
def test_models_are_checked_before_the_cleaning(corpora, model_directory, tmp_path, capsys, options, message):
    options = [option.format(model_directory=model_directory) for option in options]
    command = ["prepare", "--output", str(tmp_path / "tokens"), "--clean", "--corpora", json.dumps(corpora)]
    assert main([*command, *options]) == 2
    error = capsys.readouterr().err
    assert message in error and "cleaning of" not in error and not list(tmp_path.iterdir())


def test_all_corpora_without_usable_pairs_are_named(corpora, tmp_path, capsys):
    options = ["--corpora", json.dumps(corpora), "--tokenizer.vocab_size=284", "--max_length=2"]
    assert main(["prepare", "--output", str(tmp_path / "tokens"), *options]) == 2
    error = capsys.readouterr().err
    assert "train.clean: 0 of" in error and "train.back-translated: 0 of" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("others", "changes", "messages"),
    [
        ({"a": {"weight": -1, "tag": "bt"}}, {}, ["a must have either", "not -1", "not 'bt'"]),
        (None, {"stages": [{"weights": {"clean": 0}}, {"weights": {"x": 1}}]}, ["never ends", "not 0", "corpus 'x'"]),
        (
            {"a": {"weight": -1, "tag": "bt"}},
            {"stages": [{"weights": {"a": 1}}, {"weights": {"x": 0}}]},
            ["not -1", "not 'bt'", "never ends", "not 0", "corpus 'x'"],
        ),
        (None, {"num_buckets": 3}, ["num_buckets"]),
        (None, {"dataset": "number_words/de_en"}, ["`dataset` must not be given with `corpora`"]),
        (None, {"reverse": "true", "train_split": "all"}, ["`reverse`, `train_split` must not be given"]),
        ({"a": {"source": "nowhere", "target": "nowhere"}}, {}, ["nowhere"]),
    ],
)
def test_bad_options_are_named_together(mixed, others, changes, messages, tmp_path, capsys):
    changes = {name: json.dumps(value) if isinstance(value, list) else value for name, value in changes.items()}
    if others:
        changes["corpora"] = json.dumps(others)
    assert main(mixed(**changes)) == 2
    error = capsys.readouterr().err
    assert all(message in error for message in messages) and not (tmp_path / "run").exists()
