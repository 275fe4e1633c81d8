"""The command `shortlist`, and exports with a shortlist."""

import json
import shutil

import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import Shortlist
from keras_transformer.text.tokenization import Tokenizer


@pytest.fixture
def copy(unlike, tmp_path):
    """A copy of a finished run with a vocabulary of 300 subwords and random weights."""
    return shutil.copytree(unlike, tmp_path / "model", ignore=shutil.ignore_patterns("export"))


@pytest.fixture
def command(copy, toy_files):
    files = (f"--{side}={toy_files}/train.{language}" for side, language in (("source", "en"), ("target", "de")))
    return ["shortlist", str(copy), *files, "--num_frequent=128"]


def test_the_shortlist_of_a_model_is_learned(command, copy, capsys):
    assert main(command) == 0
    shortlist = Shortlist.load(copy / "shortlist.npz")
    assert len(shortlist.always) == 129 and shortlist.vocab_size == 300 and len(shortlist.table) == 300
    tokenizer = Tokenizer(copy / "tokenizer.model")
    is_listed = np.isin(tokenizer.text_constraints.forbidden, [*shortlist.always, *shortlist.table.flat])
    assert is_listed.tolist() == [True] + [False] * (len(is_listed) - 1)  # The unknown token is a special one.
    # Bytes of characters that the text does not contain can be copied.
    rare = tokenizer.encode(["☃"])
    assert set(rare[0]) <= set(shortlist.candidates(rare).tolist()) and max(rare[0]) > 128
    assert "32 sentences at a time" in capsys.readouterr().err
    assert main(command) == 2
    assert "shortlist.npz exists; use --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0


def test_text_without_pairs_is_refused(command, copy, tmp_path, capsys):
    empty = tmp_path / "empty"
    empty.touch()
    assert main([*command, f"--source={empty}", f"--target={empty}"]) == 2
    assert "empty is empty" in capsys.readouterr().err and not (copy / "shortlist.npz").exists()


def test_one_pair_has_no_coverage(command, copy, tmp_path, capsys):
    """Nothing is held out, so nothing is said about it."""
    pair = tmp_path / "pair"
    pair.write_text("one\n", encoding="utf-8")
    assert main([*command, f"--source={pair}", f"--target={pair}"]) == 0
    assert "held-out" not in capsys.readouterr().err and (copy / "shortlist.npz").exists()


def test_a_character_that_begins_can_be_completed(command, copy, tmp_path):
    """Bytes that continue characters are always considered, even those that do not occur in the text."""
    pair = tmp_path / "pair"
    pair.write_text("☃\n", encoding="utf-8")
    assert main([*command, f"--target={pair}", f"--source={pair}"]) == 0
    within = [i for i, byte in Tokenizer(copy / "tokenizer.model").text_constraints.bytes if 0x80 <= byte < 0xC0]
    assert len(within) == 64 and set(within) <= set(Shortlist.load(copy / "shortlist.npz").always.tolist())


@pytest.mark.parametrize(
    ("damage", "message"), [(None, "Make one: keras-transformer shortlist"), (b"text", "Not a shortlist")]
)
def test_an_export_without_a_valid_shortlist_is_refused(copy, damage, message, capsys):
    if damage:
        (copy / "shortlist.npz").write_bytes(damage)
    assert main(["export", str(copy), "--format=onnx", "--shortlist"]) == 2
    assert message in capsys.readouterr().err and not (copy / "export").exists()


def test_a_shortlist_is_not_in_all_formats(copy, capsys):
    assert main(["export", str(copy), "--format=huggingface", "--shortlist"]) == 2
    assert "`shortlist` is not supported by format huggingface" in capsys.readouterr().err


@pytest.mark.nightly
def test_exports_with_a_shortlist_equal_keras(command, copy):
    """Each export is compared with the Keras model, which has the same list."""
    assert main([*command, "--width=1"]) == 0
    options = ["--format=onnx,ctranslate2,saved_model", "--shortlist", "--extra_length=9"]
    assert main(["export", str(copy), *options]) == 0
    verifications = json.loads((copy / "export" / "verification.json").read_text(encoding="utf-8"))
    for name in ("onnx", "ctranslate2 greedy", "saved_model"):
        assert verifications[name]["search"]["shortlist"]
    assert "shortlist" not in verifications["onnx encoder and decoder"]["search"]
