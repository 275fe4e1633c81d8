import gzip
import io
import sys

import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.export import CTranslate2Translator
from keras_transformer.training.evaluate import evaluate

SEARCH = ["--extra_length=5"]


@pytest.fixture(scope="module")
def expected(keras_translator, lines):
    return [translation.text for translation in keras_translator.translate([*lines, ""])]


@pytest.mark.parametrize("runtime", ["keras", "saved_model", "onnx"])
def test_standard_output_holds_the_translations_alone(exported, lines, expected, runtime, tmp_path, capfd):
    (tmp_path / "text").write_text("\r\n".join([*lines, ""]) + "\n", encoding="utf-8")
    options = SEARCH if runtime == "keras" else []
    capfd.readouterr()
    assert main(["translate", str(exported), str(tmp_path / "text"), "--runtime", runtime, *options]) == 0
    assert capfd.readouterr().out == "".join(text + "\n" for text in expected)


@pytest.mark.parametrize("runtime", ["saved_model", "onnx"])
def test_the_search_of_an_export_is_fixed(exported, runtime, tmp_path, capfd):
    (tmp_path / "text").write_text("two\n")
    arguments = ["translate", str(exported), str(tmp_path / "text"), f"--runtime={runtime}"]
    assert main([*arguments, "--beam_size=4", "--extra_length", "5"]) == 0
    capfd.readouterr()
    assert main([*arguments, "--beam_size", "2"]) == 2
    error = capfd.readouterr().err
    assert f"The search of the {runtime} export is fixed: " in error and "'beam_size': 4" in error
    assert error.endswith("Received: beam_size=2\n")


def test_the_search_of_ctranslate2_is_not(exported, lines, tmp_path, capfd):
    (tmp_path / "text").write_text("\n".join(lines))
    greedy = BeamSearch(beam_size=1, extra_length=5)
    expected = CTranslate2Translator(exported, greedy).translate(lines)
    capfd.readouterr()
    assert main(["translate", str(exported), str(tmp_path / "text"), "--runtime=ctranslate2", "--beam_size=1"]) == 0
    assert capfd.readouterr().out == "".join(f"{translation.text}\n" for translation in expected)


def test_standard_input(exported, lines, expected, monkeypatch, capsys):
    text = "\n".join([*lines, ""]) + "\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    assert main(["translate", str(exported), "--runtime=onnx", "--batch_size=3"]) == 0
    assert capsys.readouterr().out == "".join(text + "\n" for text in expected)


def test_a_gzipped_file(exported, lines, expected, tmp_path, capsys):
    with gzip.open(tmp_path / "text.gz", "wb") as file:
        file.write("\n".join([*lines, ""]).encode() + b"\n")
    arguments = ["--runtime=onnx", "--batch_tokens=20", "--threads=1"]
    assert main(["translate", str(exported), str(tmp_path / "text.gz"), *arguments]) == 0
    assert capsys.readouterr().out == "".join(text + "\n" for text in expected)


def test_a_file_that_is_cut(exported, tmp_path, capsys):
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"two\n" * 100)[:-9])
    assert main(["translate", str(exported), str(tmp_path / "text.gz"), "--runtime=onnx"]) == 2
    assert f"Cannot read {tmp_path / 'text.gz'}: " in capsys.readouterr().err


def test_no_lines_give_no_lines(exported, tmp_path, capsys):
    (tmp_path / "text").touch()
    assert main(["translate", str(exported), str(tmp_path / "text"), "--runtime=onnx"]) == 0
    assert capsys.readouterr().out == ""


def test_evaluate(exported, keras_translator, toy_files, lines, capsys):
    files = [f"--source={toy_files / 'test.en'}", f"--reference={toy_files / 'test.de'}"]
    assert main(["evaluate", str(exported), *files, *SEARCH]) == 0
    reference = (toy_files / "test.de").read_text(encoding="utf-8").splitlines()
    scores = evaluate(keras_translator, lines, reference)
    assert capsys.readouterr().out == f"{scores}\n"


BAD = {
    "misaligned": (["--source={files}/test.en", "--reference={files}/train.de"], "do not align: 20 and 300 lines"),
    "missing": (["--source={files}/test.en", "--reference={files}/none"], "Cannot read {files}/none"),
    "tokenizer": (
        ["--source={files}/test.en", "--reference={files}/test.de", "--bleu_tokenize=moses"],
        "`bleu_tokenize` must be one of 13a",
    ),
    "empty": (["--source=/dev/null", "--reference=/dev/null"], "Received: 0 and 0"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_evaluating_bad_files(exported, toy_files, options, message, capsys):
    options = [option.format(files=toy_files) for option in options]
    assert main(["evaluate", str(exported), "--runtime=onnx", *options]) == 2
    captured = capsys.readouterr()
    assert message.format(files=toy_files) in captured.err and captured.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["none"], "Cannot read none: No such file or directory"),
        (["--batch_size=0"], "`batch_size` must be at least 1. Received: batch_size=0"),
        (["--batch_tokens=0"], "`batch_tokens` must be at least 1. Received: batch_tokens=0"),
        (["--threads=-1"], 'Parser key "threads"'),
    ],
)
def test_translating_badly(exported, options, message, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"two\n")))
    assert main(["translate", str(exported), *options, "--runtime=onnx"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""


def test_a_runtime_that_is_not_exported(model_directory, capsys):
    assert main(["translate", str(model_directory), "--runtime=onnx"]) == 2
    assert f"No ONNX export in {model_directory} (no model.onnx)" in capsys.readouterr().err
