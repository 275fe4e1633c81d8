"""Runs on prepared tokens."""

import re

import pytest

from keras_transformer.cli import main
from keras_transformer.storage.atomic_files import TEMPORARY
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.progress import Progress

BRIEF = {"recipe.max_steps": 6, "recipe.validate_every": 3, "recipe.checkpoint_every": 2}
#: Options of the data in the arguments of a run.
DATA = ("source", "target", "max_length", "tokenizer.vocab_size")


@pytest.fixture(scope="module")
def tokens(arguments, tmp_path_factory):
    """Prepared tokens of the text of the other runs. Do not modify."""
    path = tmp_path_factory.mktemp("prepared") / "tokens"
    assert main(prepared(arguments(path), "--source_language=en")) == 0
    return path


@pytest.fixture(scope="module")
def on_tokens(arguments, tokens):
    """Makes the command line arguments of a tiny run on the tokens."""

    def on_tokens(output, **changes):
        return arguments(output, **{**dict.fromkeys(DATA), "prepared": tokens, **BRIEF, **changes})

    return on_tokens


def prepared(arguments, *more):
    """The arguments of `prepare`, from the data options of `train`."""
    names = tuple(f"--{name}=" for name in (*DATA, "output"))
    return ["prepare", *(argument for argument in arguments if argument.startswith(names)), *more]


def contents(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def weights_of(path):
    return contents(path)[ModelDirectory("").model_file]


def killer(step):
    """A progress bar that raises an error in this step, like a killed process."""

    class Killer(Progress):
        def on_train_batch_begin(self, batch, logs=None):
            if self.bar.n == step - 1:
                raise RuntimeError("killed")

    return Killer


@pytest.mark.nightly
def test_a_run_on_tokens_is_one_on_their_text(arguments, on_tokens, tokens, tmp_path, capsys):
    before = contents(tokens)
    assert main(arguments(tmp_path / "text", source_language="en", **BRIEF)) == 0
    assert main(on_tokens(tmp_path / "tokens", target_language="de")) == 0
    assert contents(tokens) == before
    files = [{path.name for path in (tmp_path / name).iterdir()} for name in ("text", "tokens")]
    assert files[0] == files[1] == {"config.yaml", "model.keras", "tokenizer.model", "checkpoints", "logs"}
    losses = [line for line in capsys.readouterr().err.replace("\r", "\n").splitlines() if "validation loss" in line]
    texts = [line[line.index("step") : line.index(";")] for line in losses]
    assert len(texts) == 4 and texts[:2] == texts[2:]
    records = [ModelDirectory(tmp_path / name).record() for name in ("text", "tokens")]
    assert records[1]["prepared"] == str(tokens) and "source" not in records[1]
    assert records[0]["tokenizers_sha256"] == records[1]["tokenizers_sha256"]
    assert ModelDirectory(tmp_path / "text").languages == ("en", None)
    assert ModelDirectory(tmp_path / "tokens").languages == ("en", "de")


@pytest.mark.nightly
@pytest.mark.parametrize("lost", [False, True])
def test_a_killed_run_has_its_tokens_still(arguments, tmp_path, monkeypatch, lost):
    """Missing tokens are written again, and must be the same."""
    run = ModelDirectory(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.training.fit.Progress", killer(4))
        with pytest.raises(RuntimeError, match="killed"):
            main(arguments(run.path, source_language="en", **BRIEF))
    assert (run.tokens / "tokens.json").exists() and run.record()["tokens_sha256"]
    if lost:
        (run.tokens / "tokens.json").unlink()
        (run.tokens / f"{TEMPORARY}1").mkdir()
    else:
        monkeypatch.setattr("keras_transformer.training.data.run_tokens.load_corpus", None)
    assert main(arguments(run.path, target_language="de", **BRIEF)) == 0  # Languages can be added, and stay.
    assert run.record()["finished"] and not run.tokens.exists() and run.languages == ("en", "de")


@pytest.mark.nightly
def test_other_tokens_are_refused(arguments, on_tokens, toy_files, tmp_path, monkeypatch, capsys):
    lines = (toy_files / "train.en").read_text().splitlines(keepends=True)
    own, text = tmp_path / "own", tmp_path / "train.en"
    for other in (lines, [lines[1], lines[0], *lines[2:]]):
        text.write_text("".join(other))
        overwrite = ["--overwrite"] if own.exists() else []
        assert main(prepared(arguments(own, source=text), *overwrite)) == 0
        if not overwrite:
            with monkeypatch.context() as patch:
                patch.setattr("keras_transformer.training.fit.Progress", killer(4))
                with pytest.raises(RuntimeError, match="killed"):
                    main(on_tokens(tmp_path / "run", prepared=own))
    before = contents(tmp_path / "run")
    assert main(on_tokens(tmp_path / "run", prepared=own)) == 2
    assert "other tokens" in capsys.readouterr().err
    assert main(on_tokens(tmp_path / "run")) == 2
    assert re.search(f"prepared.*{own}", capsys.readouterr().err)
    assert contents(tmp_path / "run") == before


def refused(capsys, arguments):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    return captured.err


def test_text_and_tokens_together_are_refused(arguments, tokens, tmp_path, capsys):
    message = refused(capsys, arguments(tmp_path / "run", prepared=tokens, max_length=256))
    assert re.search("`source`, `target`, `tokenizer` .*Received: prepared=", message)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens_per_batch": 39}, "`tokens_per_batch` .*40.*Received: tokens_per_batch=39"),
        ({"prepared": "{folder}/none"}, "{folder}/none .*no tokens.json"),
        ({"model.positions": "learned", "model.max_length": 39}, "Received: model.max_length=39, max_length=40"),
    ],
)
def test_bad_options_are_refused(on_tokens, tmp_path, capsys, changes, message):
    changes = {name: str(value).format(folder=tmp_path) for name, value in changes.items()}
    assert re.search(message.format(folder=tmp_path), refused(capsys, on_tokens(tmp_path / "run", **changes)))
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_fine_tuning_requires_tokens_of_the_models_tokenizer(arguments, on_tokens, model_directory, tmp_path, capsys):
    """Tokens with the model's tokenizer are accepted, others refused."""
    own = tmp_path / "own"
    assert main(prepared(arguments(own, **{"tokenizer.vocab_size": None}), f"--init_from={model_directory}")) == 0
    model = Tokenizer(model_directory / "tokenizer.model").model
    assert (own / "tokenizer.model").read_bytes() == model
    without = dict.fromkeys(("model.num_layers", "model.d_model", "model.num_heads", "model.d_ff", "model.use_bias"))
    options = {**without, "init_from": model_directory, "recipe.max_steps": 1}
    assert main(on_tokens(tmp_path / "run", prepared=own, **options)) == 0
    assert main(prepared(arguments(own, **{"tokenizer.vocab_size": 290}), "--overwrite")) == 0
    message = refused(capsys, on_tokens(tmp_path / "other", prepared=own, **options))
    assert re.search(f"`init_from`.*Received: init_from=.{model_directory}", message)


@pytest.mark.nightly
def test_validation_bleu_is_of_the_text(on_tokens, toy_files, tmp_path, monkeypatch):
    seen = []

    def evaluate(translator, source, target, **options):
        seen.append((source, target))
        return type("Scores", (), {"bleu": 1.0})

    monkeypatch.setattr("keras_transformer.training.validation_bleu.evaluate", evaluate)
    assert main(on_tokens(tmp_path / "run", **{"recipe.bleu_sentences": 2, "recipe.max_steps": 1})) == 0
    lines = [(toy_files / f"train.{language}").read_text().splitlines()[99:200:100] for language in ("en", "de")]
    assert seen == [tuple(lines)]


def test_the_rejected_pairs_do_not_replace_the_corpus(arguments, toy_files, tmp_path, capsys):
    text = tmp_path / "train.en"
    text.write_bytes((toy_files / "train.en").read_bytes())
    options = ["--clean", f"--cleaning.rejected={text}", "--overwrite"]
    message = refused(capsys, prepared(arguments(tmp_path / "own", source=text), *options))
    assert "`cleaning.rejected` must not be a file of the corpus" in message
    assert text.read_bytes() == (toy_files / "train.en").read_bytes() and not (tmp_path / "own").exists()
