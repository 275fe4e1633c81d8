import numpy as np
import pytest

from keras_transformer.storage.atomic_files import TEMPORARY
from keras_transformer.storage.token_directory import FORMAT_VERSION, TokenDirectory
from keras_transformer.text.files import one_line
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig
from keras_transformer.training.data import prepare as module
from keras_transformer.training.data.prepare import prepare, write_tokens
from keras_transformer.training.data.tokenizer import train_tokenizers
from keras_transformer.training.data_config import DataConfig, PrepareConfig
from keras_transformer.training.datasets import Corpus, Pairs

SOURCE = ["twenty one", "thirty two", "twenty two", "one hundred", "two hundred one"] * 3
TARGET = ["einundzwanzig", "zweiunddreißig", "zweiundzwanzig", "einhundert", "zweihunderteins"] * 3
ODD = [
    "twenty two hundred",
    "  two   one ",
    "one\x00two",
    "tab\tand \u2028 line separator",
    "\N{GRINNING FACE} zwei \ufffd",
    "\N{FULLWIDTH DIGIT ONE}\N{LATIN SMALL LIGATURE FI}",
    "x" * 200,
]


def pairs_of(source, target):
    pairs = list(zip(source, target, strict=True))
    return Pairs(lambda: iter(pairs), len(pairs))


@pytest.fixture
def write(tmp_path):
    """Writes lines as both splits, with a tokenizer trained on number words."""

    def write(source, target, options=None, **config):
        models = train_tokenizers(
            zip(SOURCE, TARGET, strict=True), TokenizerConfig(**{"vocab_size": 290, **(options or {})})
        )
        directory = TokenDirectory(tmp_path / "tokens")
        directory.path.mkdir()
        pairs = pairs_of(source, target)
        write_tokens(directory, Corpus(pairs, pairs), models, DataConfig(**config))
        return directory

    return write


def sentences(side):
    return [side.ids[start : start + size].tolist() for start, size in zip(side.starts, side.lengths, strict=True)]


@pytest.mark.parametrize("chunk", [1, 4, 20_000])
def test_the_written_tokens_are_the_corpus(write, monkeypatch, chunk):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    source = [*SOURCE, "", "one", "one", *ODD]
    target = [*TARGET, "eins", " ", "zwei " * 200, *ODD]
    directory = write(source, target)
    tokenizer = Tokenizer(directory.tokenizer_models()[0])
    kept = [i for i in range(len(source)) if not 15 <= i < 18]
    for split in ("train", "validation"):
        sides = directory.sides(split)
        for side, lines in zip(sides, (source, target), strict=True):
            assert side.ids.dtype == np.uint16
            assert sentences(side) == tokenizer.encode([lines[i] for i in kept])
        found = directory.statistics(split)
        assert (found.pairs, found.kept, found.empty, found.too_long, found.identical) == (25, 22, 2, 1, 7)
    assert directory.validation_lines(99) == (list(map(one_line, source)), list(map(one_line, target)))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("normalization", ["nfc", "nmt_nfkc", "identity"])
def test_ids_are_those_of_tensorflow_text(write, shared, normalization):
    """TensorFlow's tokenizer is the one inside a SavedModel."""
    text = pytest.importorskip("tensorflow_text")
    lines = [*SOURCE[:5], *ODD]
    options = {"shared": shared, "normalization": normalization}
    directory = write(lines, lines[::-1], options, max_length_ratio=1000.0)
    models = directory.tokenizer_models()
    assert len(models) == (1 if shared else 2)
    for side, model, ours in zip(directory.sides("train"), (models[0], models[-1]), (lines, lines[::-1]), strict=True):
        tokenizer = text.SentencepieceTokenizer(model, add_eos=True)
        assert sentences(side) == tokenizer.tokenize(ours).to_list()


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, "uint16"), ((1 << 16) + 1, "int32")])
def test_large_vocabularies_take_more_bytes(write, monkeypatch, vocab_size, dtype):
    monkeypatch.setattr(Tokenizer, "vocab_size", vocab_size)
    source, target = write(SOURCE, TARGET).sides("train")
    assert source.ids.dtype == target.ids.dtype == dtype


@pytest.mark.parametrize("lines", [[], ["", ""]])
def test_a_corpus_without_usable_pairs_is_refused(write, lines):
    with pytest.raises(ValueError, match=f"pairs that can be used.*train: 0 of {len(lines)} pairs"):
        write(lines, lines)


@pytest.fixture
def options(toy_files, tmp_path):
    """Options that prepare the toy files."""
    files = {"source": str(toy_files / "train.en"), "target": str(toy_files / "train.de")}
    return {"output": str(tmp_path / "tokens"), **files, "tokenizer": TokenizerConfig(vocab_size=300)}


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_text_files_are_prepared(options, tmp_path, capsys):
    directory = prepare(PrepareConfig(**options))
    assert directory.path == tmp_path / "tokens"
    captured = capsys.readouterr()
    assert captured.out == "" and "297 of 297 pairs" in captured.err
    assert "3 of 3 pairs" in captured.err
    record = directory.record()
    assert record["data"]["source"] == [options["source"]] and record["data"]["max_length"] == 256
    assert record["vocab_sizes"] == [300]
    assert record["tokenizers_sha256"] == [Tokenizer(directory.path / "tokenizer.model").sha256]
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_the_tokenizer_learns_from_pairs_that_may_be_used(options, tmp_path, monkeypatch):
    """If none may be used, it learns from all: the error comes with the counts."""
    learnt = []

    def train(pairs, *args):
        learnt[:] = pairs
        return train_tokenizers(learnt, *args)

    monkeypatch.setattr("keras_transformer.training.data.prepare.train_tokenizers", train)
    lines = [f"number {i}" for i in range(120)]
    for side, last in (("source", "a word"), ("target", "")):
        options[side] = str(tmp_path / side)
        (tmp_path / side).write_text("\n".join([*lines, last, 50 * "long "]))
    prepare(PrepareConfig(**{**options, "max_length": 20}))
    assert {word for pair in learnt for line in pair for word in line.split()} & {"number", "word", "long"} == {
        "number"
    }
    with pytest.raises(ValueError, match="train: 0 of .* too long"):
        prepare(PrepareConfig(**{**options, "max_length": 2, "output": str(tmp_path / "none")}))
    assert learnt[-1] == (50 * "long ", 50 * "long ")


def test_tokens_are_replaced_only_if_asked_for(options, tmp_path):
    before = contents(prepare(PrepareConfig(**options)).path)
    with pytest.raises(ValueError, match="tokens contains tokens.*--overwrite"):
        prepare(PrepareConfig(**options))
    other = {**options, "tokenizer": TokenizerConfig(vocab_size=8000), "overwrite": True}
    with pytest.raises(ValueError, match="`tokenizer.vocab_size` .*Received: "):
        prepare(PrepareConfig(**other))
    assert contents(tmp_path / "tokens") == before
    assert prepare(PrepareConfig(**options, overwrite=True)).path == tmp_path / "tokens"
    assert contents(tmp_path / "tokens") == before
    prepare(PrepareConfig(**options | {"tokenizer": TokenizerConfig(vocab_size=290)}, overwrite=True))
    assert contents(tmp_path / "tokens") != before


@pytest.mark.parametrize("shared", [False, True])
def test_files_of_replaced_tokens_are_deleted(options, tmp_path, shared):
    for is_shared in (not shared, shared):
        tokenizer = TokenizerConfig(vocab_size=290, shared=is_shared)
        directory = prepare(PrepareConfig(**options | {"tokenizer": tokenizer}, overwrite=True))
    assert len(directory.tokenizer_models()) == len(list(directory.path.glob("*.model"))) == (1 if shared else 2)


def test_files_of_a_killed_process_are_replaced(options, tmp_path):
    directory = prepare(PrepareConfig(**options))
    directory.record_file.write_text('{"format": 1, "complete": false}')
    (directory.path / f"{TEMPORARY}abc").mkdir()
    with pytest.raises(ValueError, match="tokens .*interrupted"):
        directory.record()
    assert prepare(PrepareConfig(**options)).record()["format"] == FORMAT_VERSION
    assert not list(directory.path.glob(f"{TEMPORARY}*"))


@pytest.mark.parametrize("name", ["thesis.tex", "train.source.npy", "tokenizer.model"])
def test_a_folder_of_something_else_is_refused(options, tmp_path, name):
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / name).touch()
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="tokens is not empty"):
            prepare(PrepareConfig(**options, overwrite=overwrite))


def test_a_record_of_something_else_is_refused(options, tmp_path):
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "tokens.json").write_text('{"color": {"red": "#f00"}}')
    with pytest.raises(ValueError, match="tokens.json: KeyError"):
        prepare(PrepareConfig(**options, overwrite=True))
    assert contents(tmp_path / "tokens")


def test_a_link_is_replaced_and_not_followed(options, tmp_path):
    directory = prepare(PrepareConfig(**options))
    (directory.path / "tokenizer.model").rename(tmp_path / "mine.model")
    (directory.path / "tokenizer.model").symlink_to(tmp_path / "mine.model")
    prepare(PrepareConfig(**options | {"tokenizer": TokenizerConfig(vocab_size=290), "overwrite": True}))
    assert (tmp_path / "mine.model").exists() and not (directory.path / "tokenizer.model").is_symlink()
