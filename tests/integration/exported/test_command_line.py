import gzip
import io
import itertools
import json
import re
import shutil
import sys

import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.evaluation.scores import evaluate
from keras_transformer.export import CTranslate2Translator, OnnxTranslator

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
    assert "'beam_size': 4" in error and "Received: beam_size=2" in error
    again = f"keras-transformer export {exported} --format {runtime} --extra_length 5 --beam_size 2"
    assert error.endswith(f": {again}\n")


def test_the_search_of_ctranslate2_is_not(exported, lines, tmp_path, capfd):
    (tmp_path / "text").write_text("\n".join(lines))
    greedy = BeamSearch(beam_size=1, extra_length=5)
    expected = CTranslate2Translator(exported, greedy).translate(lines)
    capfd.readouterr()
    arguments = ["--runtime=ctranslate2", "--beam_size=1", "--parallel_batches=1"]  # The limit applies per batch.
    assert main(["translate", str(exported), str(tmp_path / "text"), *arguments]) == 0
    assert capfd.readouterr().out == "".join(f"{translation.text}\n" for translation in expected)


@pytest.fixture(scope="module")
def n_best(keras_translator, lines):
    return keras_translator.translate([*lines, ""], n_best=3)


@pytest.mark.parametrize("runtime", ["saved_model", "onnx", "onnx_int8", "ctranslate2"])
def test_n_best_writes_a_row_for_each_hypothesis(exported, lines, n_best, runtime, tmp_path, capfd):
    (tmp_path / "text").write_text("\n".join([*lines, ""]) + "\n", encoding="utf-8")
    capfd.readouterr()
    assert main(["translate", str(exported), "--runtime", runtime, str(tmp_path / "text"), "--n_best=3"]) == 0
    rows = [line.split("\t") for line in capfd.readouterr().out.splitlines()]
    numbers = [int(row[0]) for row in rows]
    assert numbers == sorted(numbers) and {*numbers} == {*range(1, 22)}
    for _, found in itertools.groupby(rows, key=lambda row: row[0]):
        _, scores, texts = zip(*found, strict=True)
        assert len({*texts}) == len(texts) <= 3 and (np.diff(np.array(scores, float)) <= 0).all()
        assert all(texts) or texts == ("",)
    if runtime in ("saved_model", "onnx"):
        hypotheses = [hypothesis for translation in n_best for hypothesis in translation.hypotheses]
        assert [row[2] for row in rows] == [hypothesis.text for hypothesis in hypotheses]
        scores = [float(row[1]) for row in rows]
        np.testing.assert_allclose(scores, [hypothesis.score for hypothesis in hypotheses], atol=1e-3)


def test_json_has_source_and_translations(exported, lines, n_best, tmp_path, capsys):
    (tmp_path / "text").write_text("\n".join([*lines, ""]) + "\n", encoding="utf-8")
    arguments = ["translate", str(exported), str(tmp_path / "text"), "--runtime=onnx", "--json"]
    for count in (1, 2):
        assert main([*arguments, f"--n_best={count}"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [entry["source"] for entry in found] == [*lines, ""]
        for entry, translation in zip(found, n_best, strict=True):
            hypotheses = translation.hypotheses[:count]
            assert [one["text"] for one in entry["translations"]] == [one.text for one in hypotheses]
            scores = [one["score"] for one in entry["translations"]]
            assert scores == pytest.approx([one.score for one in hypotheses], abs=1e-3)


@pytest.mark.parametrize("runtime", ["keras", "onnx"])
def test_more_hypotheses_than_the_search_holds(exported, runtime, capsys):
    assert main(["translate", str(exported), "/dev/null", "--runtime", runtime, "--n_best=5"]) == 2
    assert "Received: n_best=5" in capsys.readouterr().err


def test_evaluate_has_no_use_for_n_best(exported, toy_files, capsys):
    files = [f"--source={toy_files / 'test.en'}", f"--reference={toy_files / 'test.de'}"]
    assert main(["evaluate", str(exported), *files, "--n_best=2"]) == 2
    assert "--n_best" in capsys.readouterr().err


def test_an_interrupted_output_is_resumed(exported, lines, monkeypatch, tmp_path, capsys):
    (tmp_path / "text").write_text("\n".join(lines * 7) + "\n", encoding="utf-8")
    arguments = ["translate", str(exported), str(tmp_path / "text"), "--runtime=onnx", "--batch_size=1", "--n_best=2"]
    assert main(arguments) == 0
    expected = capsys.readouterr().out
    arguments += ["--output", str(tmp_path / "out")]

    search, calls = OnnxTranslator.search, []

    def interrupted(self, source, n_best=None):
        calls.append(source)
        if len(calls) == 100:
            raise KeyboardInterrupt
        return search(self, source, n_best)

    with monkeypatch.context() as patch:
        patch.setattr(OnnxTranslator, "search", interrupted)
        assert main([*arguments, "--parallel_batches=1"]) == 130
    partial = tmp_path / "out.partial" / "lines"
    first = [row for row in expected.splitlines(keepends=True) if int(row.partition("\t")[0]) <= 64]
    assert partial.read_text(encoding="utf-8") == "".join(first)
    with open(partial, "a") as file:
        file.write("65\t-1.0\tsomething\n65\t-2")
    assert main(arguments) == 2 and main([*arguments, "--resume", "--n_best=3"]) == 2
    said = capsys.readouterr().err
    assert re.search("out.partial .*interrupted.*--resume", said) and re.search("out.partial .*another.* search", said)
    assert not (tmp_path / "out").exists()

    calls.clear()
    with monkeypatch.context() as patch:
        patch.setattr(OnnxTranslator, "search", lambda *a, **k: calls.append(a) or search(*a, **k))
        assert main([*arguments, "--resume"]) == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected
    assert 140 - 64 <= len(calls) < 140
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text"]


def test_standard_input_is_translated_to_a_file(exported, lines, expected, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    arguments = ["translate", str(exported), "--runtime=onnx", f"--output={tmp_path / 'out'}"]
    assert main([*arguments, "--resume"]) == 2
    assert re.search("`--resume` .*Received: standard input", capsys.readouterr().err)
    assert main(arguments) == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == "".join(f"{text}\n" for text in expected[:-1])
    assert capsys.readouterr().out == "" and [*tmp_path.iterdir()] == [tmp_path / "out"]


def test_a_file_in_another_encoding_is_translated(exported, tmp_path, capsys):
    for name, encoding in (("utf-8", "utf-8"), ("wide", "utf-16"), ("western", "cp1252")):
        (tmp_path / name).write_bytes("two né\r\n\nnine".encode(encoding))
        assert main(["translate", str(exported), "--runtime=onnx", str(tmp_path / name), "--encoding", encoding]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found[:3] == found[3:6] == found[6:] and found[1] == ""


BAD_TEXT = {
    "translate": ["{bad}", "--runtime=onnx", "--output={folder}/out"],
    "export": ["--format=onnx", "--quantize=int8", "--source={bad}", "--reference={bad}"],
}


@pytest.mark.parametrize(("command", "options"), BAD_TEXT.items(), ids=BAD_TEXT)
def test_a_file_that_is_not_utf_8(exported, tmp_path, capsys, command, options):
    (tmp_path / "bad").write_bytes("two\ndrei né und zwölf\n".encode("latin-1"))
    options = [option.format(bad=tmp_path / "bad", folder=tmp_path) for option in options]
    assert main([command, str(exported), *options]) == 2
    captured = capsys.readouterr()
    assert re.search(f"{tmp_path / 'bad'}: line 2 .*utf-8.*cp1252", captured.err)
    assert captured.out == "" and [*tmp_path.iterdir()] == [tmp_path / "bad"]
    assert main([command, str(exported), *options, "--encoding=klingon"]) == 2
    assert "Received: encoding='klingon'" in capsys.readouterr().err


def test_standard_input_is_translated(exported, lines, expected, monkeypatch, capsys):
    text = "\n".join([*lines, ""]) + "\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
    assert main(["translate", str(exported), "--runtime=onnx", "--batch_size=3"]) == 0
    assert capsys.readouterr().out == "".join(text + "\n" for text in expected)


def test_a_gzipped_file_is_translated(exported, lines, expected, tmp_path, capsys):
    with gzip.open(tmp_path / "text.gz", "wb") as file:
        file.write("\n".join([*lines, ""]).encode() + b"\n")
    arguments = ["--runtime=onnx", "--batch_tokens=20", "--parallel_batches=1"]
    assert main(["translate", str(exported), str(tmp_path / "text.gz"), *arguments]) == 0
    assert capsys.readouterr().out == "".join(text + "\n" for text in expected)


def test_a_file_that_is_cut(exported, tmp_path, capsys):
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"two\n" * 100)[:-9])
    assert main(["translate", str(exported), str(tmp_path / "text.gz"), "--runtime=onnx"]) == 2
    assert f"{tmp_path / 'text.gz'}: " in capsys.readouterr().err


def test_no_lines_give_no_lines(exported, tmp_path, capsys):
    (tmp_path / "text").touch()
    assert main(["translate", str(exported), str(tmp_path / "text"), "--runtime=onnx"]) == 0
    assert capsys.readouterr().out == ""


def test_evaluate_prints_the_scores(exported, keras_translator, toy_files, lines, capsys):
    files = [f"--source={toy_files / 'test.en'}", f"--reference={toy_files / 'test.de'}"]
    assert main(["evaluate", str(exported), *files, *SEARCH]) == 0
    reference = (toy_files / "test.de").read_text(encoding="utf-8").splitlines()
    scores = evaluate(keras_translator, lines, reference)
    assert capsys.readouterr().out == f"{scores}\n"


BAD = {
    "misaligned": (["--source={files}/test.en", "--reference={files}/train.de"], "`source` and .*20 and 300"),
    "missing": (["--source={files}/test.en", "--reference={files}/none"], "{files}/none.*No such file"),
    "tokenizer": (
        ["--source={files}/test.en", "--reference={files}/test.de", "--bleu_tokenize=moses"],
        "`bleu_tokenize` .*13a.*Received: .*moses",
    ),
    "empty": (["--source=/dev/null", "--reference=/dev/null"], "Received: 0 and 0"),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_evaluate_refuses_bad_files(exported, toy_files, options, message, capsys):
    options = [option.format(files=toy_files) for option in options]
    assert main(["evaluate", str(exported), "--runtime=onnx", *options]) == 2
    captured = capsys.readouterr()
    assert re.search(message.format(files=toy_files), captured.err) and captured.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["none"], "none: No such file"),
        (["--batch_size=0"], "`batch_size` .*Received: batch_size=0"),
        (["--batch_tokens=0"], "`batch_tokens` .*Received: batch_tokens=0"),
        (["--num_threads=-1"], "num_threads` .*Received: .*-1"),
        (["--resume"], "`--resume` .*`--output`"),
        (["--output=."], "`--output` .*Received: --output=."),
    ],
)
def test_translate_refuses_bad_options(exported, options, message, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"two\n")))
    assert main(["translate", str(exported), *options, "--runtime=onnx"]) == 2
    captured = capsys.readouterr()
    assert re.search(message, captured.err) and captured.out == ""


@pytest.mark.slow
def test_a_runtime_that_is_not_exported(model_directory, capsys):
    assert main(["translate", str(model_directory), "--runtime=onnx"]) == 2
    assert re.search(f"ONNX export .*{model_directory} .*model.onnx", capsys.readouterr().err)


def test_the_source_is_not_overwritten(exported, toy_files, tmp_path, capsys):
    (tmp_path / "text").write_text("two\n")
    assert main(["translate", str(exported), str(tmp_path / "text"), f"--output={tmp_path / 'text'}"]) == 2
    assert "`--output` must not be the source file" in capsys.readouterr().err
    assert (tmp_path / "text").read_text() == "two\n"


def test_a_missing_export_is_named_with_its_command(exported, toy_files, tmp_path, capsys):
    shutil.copytree(exported, tmp_path / "model", ignore=shutil.ignore_patterns("export"))
    for runtime, command in (("onnx_int8", "onnx --quantize int8"), ("saved_model", "saved_model")):
        assert main(["translate", str(tmp_path / "model"), str(toy_files / "test.en"), f"--runtime={runtime}"]) == 2
        assert f"Make one: keras-transformer export {tmp_path / 'model'} --format {command}" in capsys.readouterr().err
