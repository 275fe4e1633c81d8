"""The files of earlier versions with the code of the day: equal ids, translations, logits and scores."""

import dataclasses
import hashlib
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import yaml

import keras_transformer as kt
from keras_transformer.apps.distillation.config import DistillConfig
from keras_transformer.cli import main
from keras_transformer.cli.commands import COMMANDS
from keras_transformer.cli.options import make_config
from keras_transformer.decoding import BeamSearch, GreedySearch, Shortlist
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data_config import PrepareConfig
from keras_transformer.training.start import check_run
from keras_transformer.translate import load_translator

FOLDER = pathlib.Path(__file__).parent
VERSIONS = sorted(file.parent.name for file in FOLDER.glob("*/expected.json"))
#: Largest size of a version, in bytes.
LARGEST = 1_500_000
#: Differences of scores by the rounding of float32 on another CPU.
TOLERANCE = 1e-3
#: Differences of scores of int8: another CPU may round an activation to the next of 255 steps.
INT8_TOLERANCE = 0.02

# A warning of TensorFlow with NumPy 2, in `keras.Model.save` and in the SavedModel code.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module", params=VERSIONS)
def version(request):
    return request.param


def hashes(folder):
    """The SHA-256 hash of each file in a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def expected(version):
    return json.loads((FOLDER / version / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(version, golden):
    """The unpacked files of the version. No test, and no reading, may change them."""
    folder = golden(version)
    before = hashes(folder)
    yield folder
    assert hashes(folder) == before


@pytest.fixture
def copy(written, tmp_path, monkeypatch):
    """A copy of the files of the version, which is the current folder."""
    monkeypatch.chdir(shutil.copytree(written, tmp_path / "copy"))


def test_no_file_has_changed():
    sums = dict(reversed(line.split("  ")) for line in (FOLDER / "SHA256SUMS").read_text().splitlines())
    files = [file for version in VERSIONS for file in (FOLDER / version).rglob("*")]
    assert {
        file.relative_to(FOLDER).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    } == sums


def test_every_version_is_small(version):
    assert sum(file.stat().st_size for file in (FOLDER / version).iterdir()) <= LARGEST


def test_the_tokenizer_keeps_its_rule(written, expected):
    samples = expected["tokenizer"].values()
    for folder in ("model", "model/export/onnx", "model/export/onnx_int8", "model/export/ctranslate2"):
        for tokenizer in load_tokenizers(ModelDirectory(written / folder)):
            ids = tokenizer.encode([sample["text"] for sample in samples])
            assert ids == [sample["ids"] for sample in samples]
            assert tokenizer.decode(ids) == [sample["decoded"] for sample in samples]


def assert_equal_hypotheses(found, expected):
    for line, hypotheses in zip(found, expected, strict=True):
        texts, scores = zip(*hypotheses, strict=True)
        assert tuple(one.text for one in line.hypotheses) == texts
        assert [one.score for one in line.hypotheses] == pytest.approx(scores, abs=TOLERANCE)


@pytest.mark.parametrize("runtime", ["onnx", "ctranslate2", pytest.param("saved_model", marks=pytest.mark.slow)])
def test_translations_of_earlier_exports_stay(runtime, written, expected):
    found = load_translator(written / "model", runtime).translate(expected["lines"]["source"], n_best=2)
    assert_equal_hypotheses(found, expected["translations"][runtime])


def test_translations_of_earlier_int8_exports_stay(written, expected):
    """Hypotheses with almost equal scores may change places."""
    found = load_translator(written / "model", "onnx_int8").translate(expected["lines"]["source"])
    hypotheses = expected["translations"]["onnx_int8"]
    assert [line.score for line in found] == pytest.approx([best[1] for best, _ in hypotheses], abs=INT8_TOLERANCE)
    clear = [best[1] - second[1] > 2 * INT8_TOLERANCE for best, second in hypotheses]
    texts = [(line.text, best[0]) for line, (best, _) in zip(found, hypotheses, strict=True)]
    assert sum(clear) > 8 and all(a == b for (a, b), is_clear in zip(texts, clear, strict=True) if is_clear)


@pytest.mark.slow
def test_an_earlier_model_translates_as_before(written, expected):
    translator, data = load_translator(written / "model"), expected["model"]
    found = translator.translate(expected["lines"]["source"], n_best=2)
    assert_equal_hypotheses(found, expected["translations"]["keras"])
    assert [list(line.tokens) for line in found] == [[i for i in best if i] for best, *_ in data["tokens"]]
    log_probs = translator.model.token_log_probs(data["source"], data["target"])
    np.testing.assert_allclose(log_probs, data["token_log_probs"], atol=TOLERANCE)
    if (written / "model/export/onnx/alignment.onnx").exists():
        pair = [np.array(data[side][3:4], "int32") for side in ("source", "target")]
        exported = load_translator(written / "model", "onnx")
        attention = (one.mean_attention(*pair) for one in (exported, translator))
        np.testing.assert_allclose(*attention, atol=1e-4)


def test_an_earlier_classifier_computes_as_before(written, expected):
    model, data = kt.load_model(written / "classifier.keras"), expected["classifier"]
    assert isinstance(model, kt.SentenceClassifier) and isinstance(model.optimizer, kt.optimizers.Adam)
    np.testing.assert_allclose(model(np.array(data["source"])), data["logits"], atol=1e-4)


def test_an_earlier_language_model_computes_as_before(written, expected):
    model, data = kt.load_model(written / "language_model.keras"), expected["language_model"]
    assert isinstance(model, kt.LanguageModel) and isinstance(model.loss, kt.losses.LabelSmoothedCrossEntropy)
    np.testing.assert_allclose(model(np.array(data["inputs"])), data["logits"], atol=1e-4)


@pytest.mark.slow
def test_texts_of_an_earlier_language_model_stay(written, expected):
    model, data = kt.load_model(written / "language_model.keras"), expected["language_model"]
    searches = {"greedy": GreedySearch(extra_length=10), "beam": BeamSearch(beam_size=3, n_best=2, extra_length=10)}
    for name, strategy in searches.items():
        found = model.generate(data["prompt"], strategy)
        np.testing.assert_array_equal(found.tokens, data[name]["tokens"])
        np.testing.assert_allclose(found.scores, data[name]["scores"], atol=TOLERANCE)


def test_an_earlier_shortlist_has_the_same_candidates(written, expected):
    if "shortlist" not in expected:
        pytest.skip("the version has no shortlists")
    data = expected["shortlist"]
    assert Shortlist.load(written / "model/shortlist.npz").candidates([data["source"]]).tolist() == data["candidates"]


def test_an_earlier_prepared_corpus_is_read(written, expected):
    tokens = TokenDirectory(written / "corpus")
    (tokenizer,) = map(Tokenizer, tokens.tokenizer_models())
    validation = tokens.validation_lines(100)
    for split in tokens.train_splits:
        for side, held_out, language in zip(tokens.sides(split), validation, ("en", "de"), strict=True):
            lines = (written / f"train.{language}").read_text(encoding="utf-8").splitlines()
            found = [line.removeprefix("<bt> ") for line in tokenizer.decode(side.lists())]
            assert len(found) == tokens.statistics(split).kept and set(found) <= set(lines) >= set(held_out)
    data = expected["corpus"]
    assert tokenizer.encode([data["text"]]) == [data["ids"]]
    assert all(tag in data["ids"] for (tag,), _ in tokens.prefixes.values())


@pytest.mark.parametrize(
    ("command", "config"), [("train", TrainConfig), ("prepare", PrepareConfig), ("distill", DistillConfig)]
)
def test_the_names_of_options(command, config, written):
    """A file with all options of the version is read, and every value is used."""
    file = written / f"{command}.yaml"
    if not file.exists():
        pytest.skip("the version has no such command")
    recorded = leaves(yaml.safe_load(file.read_text(encoding="utf-8")))
    required = ["--teacher=model", "--source=train.en"] if command == "distill" else []
    found = leaves(dataclasses.asdict(make_config(COMMANDS[command], config, [f"--config={file}", *required], "")))
    assert {name: found[name] for name, value in recorded.items() if value is not None} == {
        name: value for name, value in recorded.items() if value is not None
    }


def leaves(options, prefix=""):
    """Dotted name -> value."""
    result = {}
    for name, value in options.items():
        result |= leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return result


@pytest.mark.nightly
def test_the_prepared_corpus_is_trained_on(copy):
    sizes = ["--model.num_layers=1", "--model.d_model=16", "--model.num_heads=2", "--model.d_ff=32"]
    recipe = ["--recipe.max_steps=2", "--recipe.xla=false", "--tokens_per_batch=600"]
    assert main(["train", "--output=new", "--prepared=corpus", *sizes, *recipe]) == 0


@pytest.fixture
def resumption(copy, expected):
    """The arguments that resume the unfinished run: its own, and the options that a refusal asks for."""
    own = [option for option in expected["unfinished"]["command"][1:] if "max_steps" not in option]
    own.append("--recipe.max_steps=44")
    try:
        check_run(train_config(own))
    except ModelDirectoryError as error:
        assert "To resume it, give these options as they were. To start over, use --overwrite" in str(error)
        changed = re.findall(r"([\w.]+) is '?(.*?)'?, requested", str(error))
        return [*own, *(f"--{name}={value}" for name, value in changed)]
    return own


def train_config(arguments):
    return make_config(COMMANDS["train"], TrainConfig, arguments, "")


def test_the_unfinished_run_can_be_resumed(resumption):
    check_run(train_config(resumption))


@pytest.mark.slow
def test_the_unfinished_run_is_resumed(resumption, capsys):
    assert main(["train", *resumption]) == 0 and ModelDirectory("unfinished").require_finished()
    assert "step 44:" in capsys.readouterr().err
