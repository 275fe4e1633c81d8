"""The folder of the format `web`, with other files in the place of the npm packages and of the graph."""

import gzip
import hashlib
import json
import re
import types

import onnx
import pytest
from onnx import helper

from keras_transformer.decoding import BeamSearch
from keras_transformer.export.format import Exported
from keras_transformer.export.web import export
from keras_transformer.export.web.export import write_web
from keras_transformer.export.web.patterns import protection_of
from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.source_text import SourceText

SCRIPTS = ("languages.js", "page.js", "protection.js", "translator.js", "worker.js")


@pytest.fixture
def graph(monkeypatch):
    """The graph that is exported, a copy of `source`."""
    source, tokens = (
        helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["n"]) for name in ("source", "tokens")
    )
    node = helper.make_node("Identity", ["source"], ["tokens"])
    proto = helper.make_model(
        helper.make_graph([node], "graph", [source], [tokens]),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    monkeypatch.setattr(export, "make_graph", lambda *args, quantize: proto if quantize == "int8" else None)
    return proto


@pytest.fixture
def write(monkeypatch, tmp_path, graph):
    """Writes the folder, with the contents of `dist/index.js`."""
    directory = ModelDirectory(tmp_path)
    directory.write_record({"languages": ["en", "de"]}, finished=True)
    directory.write_tokenizers((b"source", b"target"))
    model = types.SimpleNamespace(config=types.SimpleNamespace(max_length=31))

    def write(name, script="exports.SentencePieceProcessor = 1;"):
        contents = {"dist/index.js": script.encode(), "LICENSE": b"Terms"}
        monkeypatch.setattr(
            export, "read_files", lambda package, names: {name: contents.get(name, name.encode() * 9) for name in names}
        )
        tokenizer = types.SimpleNamespace(unknown_ids=[1])
        strategy = BeamSearch(beam_size=3, n_best=2)
        write_web(Exported(model, directory, (tokenizer, tokenizer), strategy), tmp_path / name)
        return tmp_path / name

    return write


def test_the_folder_has_all_files(write, graph, capsys):
    folder = write("web")
    described = json.loads((folder / "translator.json").read_text())
    files = described.pop("files")
    assert described.pop("protection") == protection_of(SourceText("en"), types.SimpleNamespace(unknown_ids=[1]))
    assert described == {
        "languages": ["en", "de"],
        "max_source_length": 30,
        "n_best": 2,
        "onnxruntime": "1.30.0",
        "tokenizers": ["source_tokenizer.model", "target_tokenizer.model"],
    }
    names = {file.name for file in folder.iterdir()}
    assert names == {*files, "translator.json", "service-worker.js"}
    assert names >= {*SCRIPTS, "index.html", "page.css", "model.onnx", "licences.txt", "sentencepiece.js"}
    for name, file in files.items():
        data = (folder / name).read_bytes()
        assert file == {"bytes": len(data), "hash": hashlib.sha256(data).hexdigest()[:16]}
    wasm = gzip.decompress((folder / "ort-wasm-simd-threaded.wasm.gz").read_bytes())
    assert wasm == b"dist/ort-wasm-simd-threaded.wasm" * 9
    assert onnx.load(folder / "model.onnx") == graph
    assert "sentencepiece-js@1.1.0: Apache-2.0" in (folder / "licences.txt").read_text()
    assert re.search(r"web: 0\.\d MB to download: 0.0 MB of model and 0\.\d MB beside it", capsys.readouterr().err)


@pytest.mark.parametrize(("forces_target", "graph_name"), [(True, "model_prefix"), (False, "model")])
def test_a_model_of_several_languages_has_one_graph_and_its_tokens(
    write, graph, forces_target, graph_name, tmp_path, monkeypatch
):
    tokens = {"en": 4, "de": 5}
    languages = Languages("en", "de", tokens, tokens, forces_target)
    ModelDirectory(tmp_path).write_record(languages.to_record(), finished=True)
    names = []
    monkeypatch.setattr(export, "make_graph", lambda name, *args, quantize: names.append(name) or graph)
    folder = write("web")
    assert names == [graph_name] and [*folder.glob("*.onnx")] == [folder / "model.onnx"]
    described = json.loads((folder / "translator.json").read_text())
    assert Languages.from_record(described) == languages
    assert described["max_source_length"] == 30 - (1 if forces_target else 2)


def constants(folder):
    script = (folder / "service-worker.js").read_text()
    version, files = re.match(r"const VERSION = (.*?);\nconst FILES = (.*?);\n", script, re.DOTALL).groups()
    return json.loads(version), json.loads(files)


def test_the_version_changes_with_the_files(write):
    first, same, other = (constants(write(*each)) for each in [("a",), ("b",), ("c", "let x;")])
    assert first == same
    assert other[0] != first[0]
    changed = {name for name, hash in other[1].items() if hash != first[1][name]}
    assert changed == {"sentencepiece.js", "translator.json"}


def test_the_library_becomes_a_module(write):
    script = (write("web") / "sentencepiece.js").read_text()
    assert script.splitlines()[2] == "exports.SentencePieceProcessor = 1;"
    assert script.splitlines()[-1] == "export const { SentencePieceProcessor } = library;"


def test_no_file_names_another_host(write):
    """The page must work without a network."""
    folder = write("web")
    for name in (*SCRIPTS, "index.html", "page.css", "service-worker.js"):
        assert "//" not in re.sub(r"(^|\s)//.*", "", (folder / name).read_text()), name
