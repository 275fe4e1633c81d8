import dataclasses
import functools
import json
import re
import shutil

import numpy as np
import pytest

from keras_transformer.cli import main
from keras_transformer.decoding import BeamSearch
from keras_transformer.export import OnnxTranslator
from keras_transformer.export import pipeline as exporting
from keras_transformer.export.config import ExportConfig
from keras_transformer.export.format import Program
from keras_transformer.export.registry import FORMATS
from keras_transformer.export.verify.equality import Agreement
from keras_transformer.storage.model_directory import ModelDirectory

AGREEING = Agreement(224, 224, 0, 1e-6)
DISAGREEING = Agreement(224, 200, 0, 1e-6)


@pytest.fixture
def unexported(model_directory, tmp_path):
    shutil.copytree(model_directory, tmp_path / "run")
    return tmp_path / "run"


def replace_format(monkeypatch, name, **changes):
    monkeypatch.setitem(FORMATS, name, dataclasses.replace(FORMATS[name], **changes))


def programs_of(title, program, path, exported):
    return {title: program._replace(strategy=exported.strategy)}


@pytest.fixture
def quick(monkeypatch):
    """Replaces the writers with one that writes the beam size, and the comparison with a fixed result."""

    def write(exported, path):
        path.mkdir()
        (path / "program").write_text(json.dumps(exported.strategy.beam_size))

    def quick(agreement):
        for name in ("saved_model", "onnx"):
            program = Program(None, BeamSearch(), lambda *args: agreement, takes_text=name == "saved_model")
            programs = functools.partial(programs_of, name, program)
            replace_format(monkeypatch, name, write=write, programs=programs)
        monkeypatch.setattr(exporting, "_verify_text", lambda *args: agreement)

    return quick


@pytest.mark.nightly
def test_verification_records_each_export(export_all, tmp_path):
    export_all(tmp_path / "run")
    entries = json.loads((tmp_path / "run" / "export" / "verification.json").read_text())
    of_other_searches = {name: entries.pop(name) for name in ("ctranslate2 greedy", "ctranslate2 beam")}
    approximate = [
        entries.pop(f"onnx_{kind}{part}") for kind in ("int8", "float16") for part in ("", " encoder and decoder")
    ]
    alignments = {kind: entries.pop(f"onnx{kind} alignment")["difference"] for kind in ("", "_int8", "_float16")}
    assert alignments[""] < 1e-3 and max(alignments.values()) < 0.2
    assert set(entries) == {"saved_model", "saved_model text", "onnx", "onnx encoder and decoder"}
    for name, entry in entries.items():
        sentences = 226 if name == "saved_model text" else 224
        assert entry["sentences"] == sentences == entry["equal"] + entry["ties"] and entry["ties"] <= 1
        assert 0 <= entry["largest_score_difference"] < 1e-3
        assert entry["search"]["extra_length"] == 5
    assert entries["onnx"]["search"]["beam_size"] == 4
    for entry in approximate:
        assert entry["sentences"] == 224 and entry["loss"] < 0.1
    for entry in of_other_searches.values():
        assert entry["sentences"] == entry["sound"] == 224 and entry["search"]["length_penalty"] == 0


def test_nothing_else_is_left(exported):
    names = {"onnx", "onnx_int8", "onnx_float16", "saved_model", "ctranslate2", "verification.json"}
    assert {file.name for file in (exported / "export").iterdir()} == names


def test_a_disagreement_leaves_nothing(unexported, quick, capsys):
    quick(DISAGREEING)
    assert main(["export", str(unexported), "--format", "onnx"]) == 1
    assert re.search("onnx export .*200 of 224 ", capsys.readouterr().err)
    assert not list((unexported / "export").glob("*"))


def test_a_disagreement_leaves_the_export_before(unexported, quick):
    quick(AGREEING)
    exporting.export(str(unexported), ExportConfig(format="onnx"))
    quick(DISAGREEING)
    assert main(["export", str(unexported), "--format", "onnx", "--beam_size", "2"]) == 1
    assert (unexported / "export" / "onnx" / "program").read_text() == "4"
    assert json.loads((unexported / "export" / "verification.json").read_text())["onnx"]["search"]["beam_size"] == 4


def test_exporting_again_replaces(unexported, quick):
    quick(AGREEING)
    exporting.export(str(unexported), ExportConfig())
    exporting.export(str(unexported), ExportConfig(format="onnx", beam_size=2))
    programs = {name: (unexported / "export" / name / "program").read_text() for name in ("onnx", "saved_model")}
    assert programs == {"onnx": "2", "saved_model": "4"}
    entries = json.loads((unexported / "export" / "verification.json").read_text())
    sizes = {name: entry["search"]["beam_size"] for name, entry in entries.items()}
    assert sizes == {"onnx": 2, "saved_model": 4, "saved_model text": 4}


@pytest.mark.nightly
def test_a_text_proves_a_quantised_export_by_bleu(exported, toy_files, tmp_path, monkeypatch, capsys):
    """Uses the files of an existing export. A later export without text removes the entry of BLEU."""
    shutil.copytree(exported, tmp_path / "run")
    folder = exported / "export" / "onnx_int8"
    replace_format(
        monkeypatch,
        "onnx_int8",
        write=lambda exported, path: shutil.copytree(folder, path),
        programs=lambda path, exported: {
            "onnx_int8": Program(OnnxTranslator(path), exported.strategy, lambda *args: AGREEING)
        },
    )
    options = {"format": "onnx", "quantize": "int8", "extra_length": 5}
    texts = {"source": str(toy_files / "test.en"), "reference": str(toy_files / "test.de")}
    monkeypatch.setattr("keras_transformer.export.verify.quality.MOST_BLEU_LOSS", 100)

    def recorded(**more):
        exporting.export(str(tmp_path / "run"), ExportConfig(**options, **more))
        return json.loads((tmp_path / "run" / "export" / "verification.json").read_text())

    assert recorded(**texts)["onnx_int8 BLEU"]["sentences"] == 20
    assert "onnx_int8 BLEU" not in recorded() and "onnx_int8" in recorded()
    assert "onnx encoder and decoder" in recorded()
    (tmp_path / "short.de").write_text("eins\n")
    with pytest.raises(ValueError, match="`reference` .*Received: 20 .* 1 "):
        recorded(**{**texts, "reference": str(tmp_path / "short.de")})
    monkeypatch.setattr("keras_transformer.export.verify.quality.MOST_BLEU_LOSS", -100)
    with pytest.raises(exporting.VerificationError, match="onnx_int8 BLEU export"):
        recorded(**texts)


def test_a_real_export_of_other_weights_is_refused(exported, tmp_path, monkeypatch):
    """Compares the SavedModel of one model with another model."""
    shutil.copytree(exported, tmp_path / "run", ignore=shutil.ignore_patterns("export"))

    def write_another(made_from, path):
        shutil.copytree(exported / "export" / "saved_model", path)
        model = made_from.model
        model.set_weights([weight + 0.2 * np.sign(weight) for weight in model.get_weights()])

    replace_format(monkeypatch, "saved_model", write=write_another)
    monkeypatch.setattr(
        exporting, "random_source_batches", lambda *args, **options: [np.array([[50, 60, 70, 3]], "int32")] * 3
    )
    with pytest.raises(exporting.VerificationError, match="saved_model export"):
        exporting.export(str(tmp_path / "run"), ExportConfig(format="saved_model", extra_length=5))
    assert not list((tmp_path / "run" / "export").glob("*"))


def test_an_unfinished_model_is_refused(runs, capsys):
    assert main(["export", str(runs / "killed")]) == 2
    assert re.search(f"{runs / 'killed'} .*finished.*missing: ", capsys.readouterr().err)
    assert not (runs / "killed" / "export").exists()


def test_a_model_in_use(unexported, quick, capsys):
    quick(AGREEING)
    with ModelDirectory(unexported).locked():
        assert main(["export", str(unexported)]) == 2
    assert re.search(f"{unexported} .*in use", capsys.readouterr().err)
    assert not (unexported / "export").exists()


def test_a_folder_of_something_else_is_not_replaced(unexported, quick, capsys):
    quick(AGREEING)
    (unexported / "export" / "onnx").mkdir(parents=True)
    (unexported / "export" / "onnx" / "mine").touch()
    assert main(["export", str(unexported)]) == 2
    assert re.search(f"{unexported / 'export' / 'onnx'} .*verification.json", capsys.readouterr().err)
    assert [path.name for path in (unexported / "export").rglob("*")] == ["onnx", "mine"]
