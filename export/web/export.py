"""Export to a folder of static files: a page that translates in the browser, and a JavaScript module."""

import gzip
import hashlib
import json
import shutil
import sys
from pathlib import Path

import onnx

from keras_transformer.export.format import Exported, Program
from keras_transformer.export.onnx.export import make_graph
from keras_transformer.export.onnx.external_weights import save_in_one_file
from keras_transformer.export.onnx.translator import OnnxTranslator
from keras_transformer.export.programs import prefix_programs
from keras_transformer.export.verify.quality import compare_likelihood
from keras_transformer.export.web.packages import ONNXRUNTIME, PACKAGES, SENTENCEPIECE, read_files
from keras_transformer.export.web.patterns import protection_of
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.source_text import source_text_of
from keras_transformer.text.lines import max_tokens

MODEL = "model.onnx"
#: The file that describes the export to its JavaScript.
DESCRIPTION = "translator.json"
#: The script that makes the page work offline. The browser compares it byte by byte to find out about a new export.
_SERVICE_WORKER = "service-worker.js"
_STATIC = Path(__file__).parent / "static"
#: The part of onnxruntime-web that runs in WebAssembly alone, without WebGPU.
_RUNTIME = ("dist/ort.wasm.min.mjs", "dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm")
#: Makes a JavaScript module of sentencepiece-js, a CommonJS module. Its `load` reads a file; here, it takes the bytes.
_AS_MODULE = """\
const library = {{}};
(function (exports, require, __filename) {{
{}
}})(library, () => ({{ URL, readFileSync: (bytes) => bytes }}), "/");
export const {{ SentencePieceProcessor }} = library;
"""


def write_web(exported: Exported, path: Path) -> None:
    """Writes `model.onnx` with int8 weights, the tokenizers, the page, its JavaScript, and the npm packages.

    The packages must have been downloaded; see `packages.require_packages`.
    """
    directory, languages, written = exported.directory, exported.languages, ModelDirectory(path)
    shutil.copytree(_STATIC, path)
    written.write_tokenizers(directory.tokenizer_models())
    # One graph with the search, to keep the download small.
    name = "model_prefix" if languages.forces_target else "model"
    save_in_one_file(make_graph(name, exported, quantize="int8"), path / MODEL)
    onnx.checker.check_model(path / MODEL, full_check=True)
    _write_packages(path)
    files = {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.name != _SERVICE_WORKER}
    described = {
        **languages.to_record(),
        "max_source_length": max_tokens(exported.model.config.max_length) - languages.max_source_prefix,
        "n_best": exported.strategy.n_best,
        "onnxruntime": ONNXRUNTIME.version,
        "protection": protection_of(source_text_of(directory.path), exported.tokenizers[0]),
        "tokenizers": [file.name for file in written.tokenizer_files],
        "files": {name: {"bytes": len(data), "hash": _hash(data)} for name, data in files.items()},
    }
    (path / DESCRIPTION).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    _write_service_worker(path, described["files"])
    _say_sizes(path)


def _write_packages(path):
    """Writes the packages' files. WebAssembly is compressed, because many file servers do not compress it."""
    for name, data in read_files(ONNXRUNTIME, _RUNTIME).items():
        file = path / Path(name).name
        if file.suffix == ".wasm":
            file = file.with_name(f"{file.name}.gz")
            data = gzip.compress(data, mtime=0)
        file.write_bytes(data)
    (script,) = read_files(SENTENCEPIECE, ["dist/index.js"]).values()
    (path / "sentencepiece.js").write_text(_AS_MODULE.format(script.decode()), encoding="utf-8")
    (licence,) = read_files(SENTENCEPIECE, ["LICENSE"]).values()
    lines = [f"{package.spec}: {package.licence}, https://www.npmjs.com/package/{package.name}" for package in PACKAGES]
    (path / "licences.txt").write_text("\n".join([*lines, "", licence.decode()]), encoding="utf-8")


def _write_service_worker(path, files):
    """Puts the version and the files into the script. The version changes when a file changes."""
    description = (path / DESCRIPTION).read_bytes()
    hashes = {name: file["hash"] for name, file in files.items()} | {DESCRIPTION: _hash(description)}
    script = path / _SERVICE_WORKER
    constants = f"const VERSION = {json.dumps(_hash(description))};\nconst FILES = {json.dumps(hashes, indent=1)};\n"
    script.write_text(constants + script.read_text(encoding="utf-8"), encoding="utf-8")


def _hash(data):
    return hashlib.sha256(data).hexdigest()[:16]


def _say_sizes(path):
    total, model = sum(file.stat().st_size for file in path.iterdir()) / 1e6, (path / MODEL).stat().st_size / 1e6
    beside = f"{model:.1f} MB of model and {total - model:.1f} MB beside it"
    print(f"web: {total:.1f} MB to download: {beside}", file=sys.stderr)


def programs(path: Path, exported: Exported) -> dict[str, Program]:
    """The folder's `model.onnx` in Python: an int8 graph as of the format `onnx`. No browser is needed.

    If it has the input `prefix`, it is verified with prefixes, too.
    """
    translator = OnnxTranslator(path, protect="off")
    prefixed = prefix_programs(exported, "web", translator, compare_likelihood)
    return {"web": Program(translator, exported.strategy, compare_likelihood), **prefixed}
