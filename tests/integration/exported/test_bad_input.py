"""Wrong input in every runtime gives an error or a result, and never affects other lines."""

import io
import re
import shutil
import sys
import warnings

import pytest

from keras_transformer.cli import main
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.lines import checked_lines
from keras_transformer.text.tokenization import TokenizerConfig, train_sentencepiece
from keras_transformer.translate import load_translator
from keras_transformer.translate.load import RUNTIMES

pytestmark = pytest.mark.nightly

GOOD = ["two", "nine nine four"]
EMPTY = ["", " ", "\t \n", "\r", "\N{NO-BREAK SPACE}", "\N{LINE SEPARATOR}"]
ODD = {
    "NUL": "two\x00three",
    "NUL at the end": "two\x00",
    "only NUL": "\x00",
    "tab": "two\tthree",
    "escape": "\x1b[31mtwo\x1b[0m",
    "carriage return": "two\rthree",
    "line feed": "two\nthree",
    "line separator": "two\N{LINE SEPARATOR}three",
    "byte order mark": "\N{ZERO WIDTH NO-BREAK SPACE}two",
    "lone surrogate": "two \udcff",
    "beyond the plane": "\N{GRINNING FACE}" * 3,
    "not a character": "two \uffff",
    "a subword's name": "</s> <pad> <0x00> \N{LOWER ONE EIGHTH BLOCK}two",
    "20,000 characters": "two " * 5_000,
    "20,000 characters without a space": "x" * 20_000,
}


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    return request.param


@pytest.fixture
def translator(exported, runtime, keras_translator):
    """A new translator for each test, because seeding clears TensorFlow's tokenizers."""
    return keras_translator if runtime == "keras" else load_translator(exported, runtime)


def texts(translator, lines, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="line .* 512: ")
        return [translation.text for translation in translator.translate(lines, **options)]


def test_no_lines_have_no_translations(translator):
    assert translator.translate([]) == []


def test_lines_without_text_have_empty_translations(translator):
    found = translator.translate([*EMPTY, "two", *EMPTY])
    assert [(t.text, t.score, t.tokens) for t in found[:6] + found[7:]] == [("", 0.0, ())] * 12
    assert found[6].text == texts(translator, ["two"])[0]
    assert texts(translator, EMPTY) == [""] * 6


def test_odd_lines_leave_the_others_alone(translator, runtime):
    """CTranslate2 uses one sentence per batch, because its length limit applies per batch."""
    batch_size = 1 if runtime in ("ctranslate2", "onnx_int8") else 32
    alone = {line: texts(translator, [line])[0] for line in (*GOOD, *ODD.values())}
    for name, odd in ODD.items():
        found = texts(translator, [GOOD[0], odd, GOOD[1]], batch_size=batch_size)
        assert found == [alone[GOOD[0]], alone[odd], alone[GOOD[1]]], name


def test_a_long_line_is_cut_with_a_warning(translator):
    with pytest.warns(UserWarning, match="line .* 512: two two"):
        assert translator.translate(["two " * 5_000])[0].text


def test_the_tokenizer_of_tensorflow_reads_odd_lines_as_the_others_do(exported):
    saved_model, onnx = (load_translator(exported, runtime) for runtime in ("saved_model", "onnx"))
    for line in checked_lines("lines", [*EMPTY, *ODD.values()]):
        (ids,) = onnx.source_tokenizer.encode([line])
        assert saved_model._loaded.source_lengths([line])[0] == len(ids) - 1, line


def test_bytes_that_are_no_text(exported, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"two\n\xff\xfe\x00 \xc3(\n\x00\nnine nine four")))
    assert main(["translate", str(exported), "--runtime=onnx"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and re.search("standard input: line 2 .*utf-8", captured.err)


def refused(capsys, exported, *options):
    assert main(["translate", str(exported), "/dev/null", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    return captured.err


def test_a_beam_of_size_0_is_refused(exported, runtime, capsys):
    message = refused(capsys, exported, "--runtime", runtime, "--beam_size=0")
    assert "Received: beam_size=0" in message


def test_a_beam_that_was_not_exported_is_refused(exported, runtime, capsys):
    if runtime in ("keras", "ctranslate2"):  # Their search is not fixed by an export.
        assert main(["translate", str(exported), "/dev/null", "--runtime", runtime, "--beam_size=2"]) == 0
    else:
        message = refused(capsys, exported, "--runtime", runtime, "--beam_size=2")
        assert "'beam_size': 4" in message and "Received: beam_size=2" in message


@pytest.fixture(params=["of another size", "of the same size"])
def other_tokenizer(request):
    text = ["some text of other words than digits and more of them"] * 3
    size = {"of another size": 280, "of the same size": 300}[request.param]
    return train_sentencepiece(text, TokenizerConfig(vocab_size=size))


def test_another_models_tokenizer_is_refused(exported, runtime, other_tokenizer, tmp_path, capsys):
    if runtime == "saved_model":
        pytest.skip("the tokenizer is inside: there is nothing to mistake")
    shutil.copytree(exported, tmp_path / "run")
    folder = tmp_path / "run" if runtime == "keras" else tmp_path / "run" / "export" / runtime
    ModelDirectory(folder).write_tokenizers((other_tokenizer,))
    message = f"tokenizers? in {folder} "
    with pytest.raises(ValueError, match=message):
        load_translator(tmp_path / "run", runtime)
    assert re.search(message, refused(capsys, tmp_path / "run", "--runtime", runtime))


def test_another_tokenizer_is_refused_in_a_directory_without_hashes(exported, tmp_path, capsys):
    shutil.copytree(exported, tmp_path / "run", ignore=shutil.ignore_patterns("export"))
    directory = ModelDirectory(tmp_path / "run")
    record = directory.record()
    directory.write_record({name: value for name, value in record.items() if name != "tokenizers_sha256"}, True)
    load_translator(directory.path)
    directory.write_tokenizers((train_sentencepiece(["some other text"], TokenizerConfig(vocab_size=270)),))
    message = rf"tokenizers? in {directory.path} .*\(270, 270\)"
    assert re.search(message, refused(capsys, directory.path))
    assert main(["export", str(directory.path)]) == 2
    assert re.search(message, capsys.readouterr().err)
