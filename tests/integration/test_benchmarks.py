import argparse
import contextlib
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from keras_transformer.cli import main

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.nightly


def run(module, *arguments):
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def rows(printed):
    """The cells of each row of all tables."""
    return [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in printed.splitlines() if "│" in line]


def test_decode_prints_its_tables(exported, toy_files):
    printed = run(
        "decode",
        exported,
        f"--source={toy_files / 'test.en'}",
        f"--reference={toy_files / 'test.de'}",
        "--beams=2",
        "--batches=4",
        "--requests",
        "--parallel_batches=2",
        "--steps=16",
        "--passes=1",
    )
    names = ["Keras generate", "SavedModel", "ONNX float32", "ONNX int8", "CTranslate2 float32", "CTranslate2 int8"]
    table = rows(printed)
    assert [row[0] for row in table] == 2 * names
    assert all(float(row[1].replace(",", "")) > 0 for row in table)
    assert len({tuple(row[7:10]) for row in table[:3]}) == 1  # The same model and search have the same quality.
    assert all(0 < float(row[7]) <= 100 and 0 <= float(row[8]) <= 1 for row in table[:6])
    assert "beam 2, 16 forced steps, batch 32" in printed


def test_requests_have_sentences_of_similar_length(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.decode_worker import batches_of

    translator = argparse.Namespace(count_tokens=lambda lines: [len(line) for line in lines])
    lines = ["aaa", "", "cccc", "dd"]
    assert batches_of(translator, lines, 2, True) == [[1, 3], [0, 2]]
    assert [list(batch) for batch in batches_of(translator, lines, 2, False)] == [[0, 1, 2, 3]]


def test_students_prints_its_tables(exported, toy_files, tmp_path):
    student = shutil.copytree(exported, tmp_path / "student")
    files = [str(toy_files / f"train.{language}") for language in ("en", "de")]
    assert main(["shortlist", str(student), f"--source={files[0]}", f"--target={files[1]}"]) == 0
    text = [f"--source={toy_files / 'test.en'}", f"--reference={toy_files / 'test.de'}"]
    picture = tmp_path / "curve.svg"
    how = ["--beams=2,1", "--passes=1", "--bleu_tokenize=none", f"--picture={picture}"]
    table = rows(run("students", exported, student, *text, *how))
    names = 4 * [exported.name] + 4 * ["student"] + 4 * ["student, shortlist"]
    assert [row[:3] for row in table] == [
        [name, runtime, beam]
        for name, (beam, runtime) in zip(
            names, 3 * [*itertools.product("21", ("ONNX int8", "CTranslate2 int8"))], strict=True
        )
    ]
    assert table[0][5] == "1.00" and all(float(row[4].replace(",", "")) > 0 for row in table)
    assert "sentences per second" in picture.read_text()
    printed = run("students", student, text[0], "--beams=1", "--passes=1", "--steps=16", "--batch=4")
    forced = rows(printed)
    assert "16 sentences in batches of 4" in printed and "16 forced steps" in printed
    assert [row[0] for row in forced] == 2 * ["student"] + 2 * ["student, shortlist"]
    assert all(float(row[3].replace(",", "")) > 0 and row[6] == "nan" for row in forced)


def test_students_uses_the_tokenizer_of_bleu(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import students

    point = students.Point("student", "ONNX int8", 1, False)
    running = {point: argparse.Namespace(size=1.0, start={"seconds": 1.0})}
    results = {point: [{"seconds": 2.0, "texts": ["a man , a dog ."]}]}
    for bleu_tokenize, is_exact in (("13a", True), ("none", False)):
        options = argparse.Namespace(threads=1, parallel_batches=2, bleu_tokenize=bleu_tokenize)
        (row,) = students.rows_of(running, results, ["ein Mann, ein Hund."], ["a man, a dog."], options)
        assert (row["BLEU"] > 99.9) is is_exact and row["words/s/core"] == 1


@pytest.mark.parametrize(("search", "expected"), [({"shortlist": True}, True), ({}, False)])
def test_ray_serve_recognizes_a_shortlist(search, expected, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.ray_serve import has_shortlist

    assert not has_shortlist(tmp_path, "onnx_int8")
    (tmp_path / "export").mkdir()
    (tmp_path / "export/verification.json").write_text(json.dumps({"onnx_int8": {"search": search}}))
    assert has_shortlist(tmp_path, "onnx_int8") is expected and not has_shortlist(tmp_path, "onnx")


def test_the_length_of_students_is_forced(exported, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import students

    searches = []
    monkeypatch.setattr(students, "exported", lambda directory, copy, search, *_: searches.append(search))
    monkeypatch.setattr(students, "Translator", lambda *_: contextlib.nullcontext())
    options = argparse.Namespace(directories=[exported], beams=[2])
    list(students.workers(options, {"min_length": 20, "extra_length": 7}, tmp_path, contextlib.ExitStack()))
    assert [(search.min_length, search.extra_length) for search in searches] == [(20, 7)]


@pytest.mark.skipif(
    not (shutil.which("npm") and (shutil.which("chromium") or shutil.which("google-chrome"))),
    reason="npm or Chromium is not installed",
)
def test_browser_prints_its_table(exported, toy_files):
    pytest.importorskip("playwright")
    options = [f"--source={toy_files / 'test.en'}", "--sentences=3", "--beams=1,2", "--threads=1", "--passes=1"]
    table = rows(run("browser", exported, *options))
    assert [row[0] for row in table] == ["beam 1, 1 thread", "beam 2, 1 thread"]
    assert all(float(row[1]) > 0 and float(row[2]) > 0 and row[3] == "3 of 3" for row in table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min_score=1"], "require --model"),
        (["--model=m"], "--model requires --min_score"),
        (["--model=m", "--validation_source=v"], "must be given together"),
    ],
)
def test_cleaning_refuses_bad_options(options, message, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import cleaning

    monkeypatch.setattr(sys, "argv", ["cleaning", "--source=s", "--target=t", *options])
    with pytest.raises(SystemExit, match="2"):
        cleaning.main()
    assert message in capsys.readouterr().err


def test_feeding_prints_its_table(toy_files):
    files = [f"--{side}={toy_files / 'train'}.{language}" for side, language in (("source", "en"), ("target", "de"))]
    printed = run("feeding", *files, "--vocab_size=300", "--num_layers=1", "--d_model=16", "--steps=30", "--rounds=1")
    names, speeds, relative = zip(*rows(printed), strict=True)
    assert names == ("plain", "sampling", "sampling and noise") and relative[0] == "1.000"
    assert all(float(speed.replace(",", "")) > 0 for speed in speeds)


def test_noise_prints_its_table(exported, toy_files):
    text = [f"--source={toy_files / 'test.en'}", f"--reference={toy_files / 'test.de'}"]
    ((name, *figures),) = rows(run("noise", exported, *text, "--runtime=onnx_int8"))
    assert name == exported.name and all(0 <= float(figure) <= 100 for figure in figures)
    assert figures[0] == figures[2]  # The text has no punctuation.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a/model", "b/model"], "different names. Received: a/model, b/model"),
        (["model", "--typos=2"], r"\(0, 1\]. Received: 2"),
        (["nowhere"], "nowhere"),
    ],
)
def test_noise_refuses_bad_options(arguments, message, toy_files, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import noise

    text = [f"--source={toy_files / 'test.en'}", f"--reference={toy_files / 'test.de'}"]
    monkeypatch.setattr(sys, "argv", ["noise", *text, *arguments])
    with pytest.raises(SystemExit, match="2"):
        noise.main()
    assert re.search(message, capsys.readouterr().err)


def test_case_is_ignored_in_upper_case_only(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import noise
    from keras_transformer.translate.translation import Translation

    class Copies:
        def translate(self, lines):
            return [Translation(line, 0.0) for line in lines]

    pairs = [("eins zwei drei vier fünf", "Eins Zwei Drei Vier Fünf")]
    figures = noise.measure(Copies(), [("a", pairs, False), ("b", pairs, True)], "13a")
    assert figures[0] < 50 and figures[1] == pytest.approx(100)


def test_noise_spoils_the_text(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import noise

    pairs = [("He sleeps deeply.", "Er schläft tief."), ("Really?", "Wirklich?")]
    unchanged, upper, no_end, typos = noise.noisy(pairs, 1.0)
    assert unchanged == ("unchanged", pairs, False)
    assert upper == ("upper case", [("HE SLEEPS DEEPLY.", "Er schläft tief."), ("REALLY?", "Wirklich?")], True)
    assert no_end == ("no end punctuation", [("He sleeps deeply", "Er schläft tief"), ("Really", "Wirklich")], False)
    assert typos[0] == "100% typos" and [target for _, target in typos[1]] == [target for _, target in pairs]
    assert all(source != old and source[0] == old[0] for (source, _), (old, _) in zip(typos[1], pairs, strict=True))


def test_cleaning_prints_its_table(toy_files):
    files = [f"--{side}={toy_files / 'train'}.{language}" for side, language in (("source", "en"), ("target", "de"))]
    printed = run("cleaning", *files)
    kinds = {row[0]: float(row[2].rstrip("%")) for row in rows(printed) if row[2].endswith("%") and "." in row[2]}
    assert {"clean", "shuffled", "copy", "duplicate", "cut", "language", "markup", "mojibake"} < set(kinds)
    assert kinds["copy"] == 100 and "clean pairs lost: " in printed
    assert all(kinds[kind] == 100 for kind in ("number", "decimal point", "time", "address")) and kinds["date"] > 80


def test_cleaning_speed_prints_its_table(toy_files):
    files = [f"--{side}={toy_files / 'train'}.{language}" for side, language in (("source", "en"), ("target", "de"))]
    table = rows(run("cleaning_speed", *files, "--pairs=2000"))
    assert [row[0] for row in table] == ["prepare --clean", "cleaning alone"]
    assert all(float(row[2].replace(",", "")) > 0 and 0 < int(row[3].replace(",", "")) < 2000 for row in table)
    assert all(10 < float(row[4].replace(",", "")) < 3000 for row in table)


def test_the_text_is_held_out_numbers_unless_one_is_given(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.decode import texts

    source, reference = texts(None, None)
    assert len(source) == len(reference) == 500 and len(set(source)) == 500
    assert all(word.isalpha() for line in (*source, *reference) for word in re.split(",? |-", line))


def test_bleu_is_shown_of_lines_that_are_long_enough(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.decode import quality

    assert quality(["eins"], ["eins"]) == ("100.00", "1.000", "-")
    assert quality(["a b c d"], ["a b c d"]) == ("100.00", "1.000", "100.00")
    assert quality(["eins"], None) == ("", "", "")


def test_texts_that_cannot_be_used_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.decode import texts

    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "one").write_text("a\n")
    for source, reference, message in (
        (tmp_path / "none", None, f"{tmp_path / 'none'}"),
        (tmp_path / "two", tmp_path / "one", f"{tmp_path / 'two'} has 2 lines, but {tmp_path / 'one'} has 1"),
    ):
        with pytest.raises(SystemExit) as error:
            texts(source, reference)
        assert error.value.code == 2
        assert message in capsys.readouterr().err


def test_a_wrong_length_is_refused(exported):
    command = [sys.executable, "-m", "benchmarks.decode", exported, "--steps=8"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert completed.returncode == 2 and re.search("error: --steps .*16", completed.stderr)


def test_cold_starts(exported):
    names = ["keras", "saved_model", "onnx", "onnx_int8", "onnx_float16", "ctranslate2"]
    assert [row[0] for row in rows(run("cold_start", exported, "--starts=1", "--line=one two"))] == names


def test_concurrent_clients_prints_its_table(exported, toy_files):
    arguments = ["--seconds=1", f"--source={toy_files / 'test.en'}", "--runtimes=onnx,ctranslate2"]
    assert [row[2] for row in rows(run("concurrent_clients", exported, *arguments))] == ["0", "0"]


def test_onnx_profile_prints_its_table(exported, toy_files):
    printed = run("onnx_profile", exported, f"--source={toy_files / 'test.en'}", "--quantize=int8")
    shares = [int(row[1].rstrip("%")) for row in rows(printed)]
    assert len(shares) == 6 and min(shares) > 0 and abs(sum(shares) - 100) <= 3


def test_corpus_prints_its_table():
    table = rows(run("corpus", "--pairs=2000", "--steps=4"))
    assert [row[0] for row in table] == ["prepare", "packed", "buckets", "train"]
    # In MiB. The interpreter alone needs 12; training includes TensorFlow.
    assert all(float(row[7].replace(",", "")) > least for row, least in zip(table, [25, 25, 25, 300], strict=True))
    assert [int(row[6].rstrip("%")) > 0 for row in table[1:3]] == [True, True]


def test_train_prints_its_table(toy_files):
    arguments = [
        "--num_layers=1",
        "--rows=2",
        "--length=4",
        "--steps=1",
        "--batches=2",
        "--passes=1",
        "--tokens_per_batch=512",
    ]
    text = [f"--source={toy_files / 'train.en'}", f"--target={toy_files / 'train.de'}", "--vocab_size=300"]
    table = rows(run("train", *arguments, *text))
    names = [row[0] for row in table]
    ways = [f"this package, XLA, {how}" for how in ("packed", "buckets", "plain")]
    assert names[:2] == ["this package, XLA", "this package, no XLA"] and [n for n in names if n in ways] == ways
    assert all(float(row[1].replace(",", "")) > 0 for row in table)
    shapes, padding = ({row[0]: int(row[i].rstrip("%")) for row in table} for i in (-4, -5))
    assert [shapes[way] for way in ways] == [1, 2, 1]
    assert padding[ways[0]] < padding[ways[2]] and padding["this package, XLA"] == 0


def test_variants_prints_its_table():
    sizes = ["--rows=2", "--length=4", "--sentences=2", "--turns=1"]
    table = rows(run("variants", "--variants", "paper", "modern", *sizes))
    assert [row[0] for row in table] == ["paper", "modern"]
    assert [row[-1] for row in table] == ["6,144", "1,536"]  # A quarter of the heads of keys and values.
    assert all(float(cell.replace(",", "")) > 0 for row in table for cell in row[1:])


def test_train_compares_fused_and_plain_attention():
    sizes = ["--num_layers=1", "--rows=2", "--length=4", "--steps=1", "--batches=0", "--passes=1", "--vocab_size=300"]
    table = rows(run("train", "--attention", "--peers", *sizes))
    names = [f"this package, {name}, {how}" for name in ("JAX", "PyTorch") for how in ("fused", "plain")]
    assert [row[0] for row in table] == names


def test_text_latency_compares_equal_tokens():
    table = rows(run("text_latency", "--prompt=16", "--tokens=6", "--turns=1"))
    assert [row[0] for row in table] == ["Keras, stream", "decoder.onnx", "decoder.onnx, int8", "transformers"]
    assert [row[-1] for row in table if "int8" not in row[0]] == ["100%"] * 3
    assert all(float(cell) > 0 for row in table for cell in row[1:5])


def test_import_memory_prints_its_table():
    table = rows(run("import_memory", "tiny", "--formats=saved_model", "--extra_length=3", "--verify"))
    phases = [("import", phase) for phase in ("importing", "comparing")]
    phases += [("saved_model", phase) for phase in ("loading", "converting", "verifying")]
    assert [(row[1], row[2]) for row in table] == phases and {row[0] for row in table} == {"tiny"}
    # TensorFlow alone needs more than 0.3 GB.
    assert all(float(row[3]) >= 0 and 0.3 < float(row[4]) < 3 for row in table)


def test_imported_compares_runtimes():
    arguments = ["--beams=2", "--batches=1,2", "--source_length=4", "--steps=6", "--passes=1", "--threads=1"]
    table = rows(run("imported", "tiny", *arguments))
    names = ["ONNX float32", "ONNX int8", "transformers", "CTranslate2 float32", "CTranslate2 int8"]
    assert [row[0] for row in table] == names
    assert all(float(cell.replace(",", "")) > 0 for row in table for cell in row[1:])
    assert table[2][2] == table[2][4] == "1.00"


def test_directions_finds_the_exact_matches_of_each(monkeypatch, capsys):
    """Of a translator that knows all numbers, but not in Spanish."""
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import directions
    from keras_transformer.translate.translation import Translation

    texts = directions.spelled(20)
    assert {code: len({*lines}) for code, lines in texts.items()} == dict.fromkeys(["en", "de", "fr", "es"], 20)

    class Knows:
        def translate(self, lines, *_, source_language, target_language, **options):
            numbers = [texts[source_language].index(line) for line in lines]
            return [Translation("" if target_language == "es" else texts[target_language][i], 0.0) for i in numbers]

    monkeypatch.setattr(directions, "load_translator", lambda *_, **options: Knows())
    monkeypatch.setattr(sys, "argv", ["directions", "model", "--count=20"])
    directions.main()
    assert [row[1:] for row in rows(capsys.readouterr().out)] == [
        ["" if source == target else "0.0%" if target == "es" else "100.0%" for target in texts] for source in texts
    ]
