"""Models of the Hugging Face Hub. A server of the loopback interface takes the place of the hub."""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import types

import pytest

from keras_transformer.cli import main
from keras_transformer.export import import_checkpoint
from keras_transformer.export.importer.families import M2M_100, MBART, T5
from keras_transformer.export.importer.hub import locate
from keras_transformer.export.importer.piece_ids import tokenizer_files
from keras_transformer.storage.model_directory import ModelDirectory

pytestmark = pytest.mark.filterwarnings("ignore:Pieces of source.spm become <unk>:UserWarning")
huggingface_hub = pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME, PINNED = "hf://tiny/marian", f"hf://tiny/marian@{COMMIT}"
LARGE = (".safetensors", ".bin")


class Hub(http.server.ThreadingHTTPServer):
    """A hub with one repository, tiny/marian, whose main branch has the files of a folder.

    Attributes:
        log: method, file and range of each request of a file.
        cuts: file -> number of times that its transfer ends in the middle.
        damaged: files whose bytes are wrong.
        gated: whether files are refused.
    """

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.log, self.cuts, self.damaged, self.gated = folder, [], {}, set(), False
        self.url = f"http://127.0.0.1:{self.server_port}"

    @property
    def downloads(self):
        return [file for method, file, _ in self.log if method == "GET"]

    def metadata(self, path):
        content = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        found = {"rfilename": path.name, "size": len(content), "blobId": blob}
        if path.suffix in LARGE:
            found["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return found


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        if found := re.match(r"/api/models/([^/]+/[^/?]+)(?:/revision/([^?]+))?\?blobs=", self.path):
            if not self.refuse(*found.groups()):
                files = [self.server.metadata(path) for path in sorted(self.server.folder.iterdir())]
                self.answer(json.dumps({"id": found[1], "sha": COMMIT, "siblings": files}).encode())
        elif found := re.match(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path):
            self.server.log.append((self.command, found[3], self.headers.get("Range")))
            if self.server.gated:
                self.fail(403, "GatedRepo")
            elif not self.refuse(found[1], found[2]):
                self.send_file(self.server.folder / found[3])

    def refuse(self, repository, revision):
        if repository != "tiny/marian":
            self.fail(404, "RepoNotFound")
        elif revision not in (None, "main", COMMIT):
            self.fail(404, "RevisionNotFound")
        else:
            return False
        return True

    def fail(self, status, code):
        self.answer(b"", status, {"X-Error-Code": code})

    def send_file(self, path):
        metadata, content = self.server.metadata(path), path.read_bytes()
        if path.name in self.server.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        tag = metadata["lfs"]["sha256"] if "lfs" in metadata else metadata["blobId"]
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        end = len(content)
        if self.command == "GET" and self.server.cuts.get(path.name):
            self.server.cuts[path.name] -= 1
            end = (start + end) // 2
        self.answer(content[start:], 206 if start else 200, headers, sent=end - start)

    def answer(self, content, status=200, headers=(), sent=None):
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **dict(headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[:sent])


@contextlib.contextmanager
def serving(folder):
    with Hub(folder) as hub:
        threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield hub
        hub.shutdown()


@pytest.fixture
def hub(marian, tmp_path, monkeypatch):
    """A hub with files that the importer reads, and others. huggingface_hub uses it with an empty cache."""
    for name in ("tf_model.h5", "pytorch_model.bin", "README.md", "tokenizer.json", "generation_config.json"):
        (marian.folder / name).write_text(json.dumps({"name": name}))  # The cache keeps equal files once.
    (marian.folder / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "fr"}')
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving(marian.folder) as hub:
        monkeypatch.setattr("huggingface_hub.HfApi", functools.partial(huggingface_hub.HfApi, endpoint=hub.url))
        yield hub


JSON = {"config.json", "generation_config.json", "vocab.json", "tokenizer_config.json", "tokenizer.json"}
READ = {"source.spm", "target.spm", "model.safetensors", *JSON}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same_as(hub, names=READ):
    return {name: (hub.folder / name).read_bytes() for name in names}


def test_a_model_is_downloaded_and_imported(hub, marian, tmp_path):
    directory = import_checkpoint(NAME, tmp_path / "run")
    assert sorted(hub.downloads) == sorted(READ)
    record = directory.require_finished()
    assert (record["imported_from"], record["downloaded_from"]) == ("marian", PINNED)
    assert directory.languages == ("en", "fra")
    other = import_checkpoint(marian.folder, tmp_path / "other")
    assert "downloaded_from" not in other.require_finished()
    assert directory.tokenizer_models() == other.tokenizer_models()


@pytest.mark.parametrize("name", [NAME, f"{NAME}@main", PINNED])
def test_files_of_the_cache_are_used_again(hub, name):
    folder, pinned = locate(name)
    assert pinned == PINNED and files_of(folder) == same_as(hub)
    hub.log.clear()
    assert locate(name) == (folder, pinned) and hub.log == []


@pytest.mark.slow
def test_the_command_uses_the_environment(hub, command, tmp_path):
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}
    environment.pop("HF_HUB_CACHE", None)
    done = subprocess.run(
        [*command, "import", f"{NAME}@main", f"--output={tmp_path / 'run'}"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert ModelDirectory(tmp_path / "run").require_finished()["downloaded_from"] == PINNED
    assert (tmp_path / "home/hub/models--tiny--marian/snapshots" / COMMIT / "config.json").exists()


def test_parts_are_downloaded_and_a_pytorch_file_only_without_them(hub, monkeypatch):
    weights = hub.folder / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    names = {"a": "part-1.safetensors", "b": "part-2.safetensors", "c": "../config.json", "d": "none.safetensors"}
    index = hub.folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    for name in ("part-1.safetensors", "part-2.safetensors", "part-3.safetensors"):
        (hub.folder / name).write_bytes(content + name.encode())
    parts = {index.name, "part-1.safetensors", "part-2.safetensors"}
    assert files_of(locate(NAME)[0]) == same_as(hub, READ - {weights.name} | parts)
    assert "pytorch_model.bin" not in hub.downloads
    index.unlink()
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    locate(NAME)
    assert hub.downloads[-1] == "pytorch_model.bin" and "tf_model.h5" not in hub.downloads


@pytest.mark.parametrize("file", ["pytorch_model.bin", "pytorch_model.bin.index.json"])
def test_a_pytorch_file_is_not_downloaded_without_pytorch(hub, file, monkeypatch):
    (hub.folder / "model.safetensors").unlink()
    (hub.folder / "pytorch_model.bin").rename(hub.folder / file)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=r"torch is not installed: pip install '.*\[torch\]'"):
        locate(NAME)
    assert "config.json" in hub.downloads and file not in hub.downloads


def test_the_files_of_languages_are_downloaded():
    added = {"special_tokens_map.json", "tokenizer_config.json", "added_tokens.json", "tokenizer.json"}
    added |= {"generation_config.json"}
    files = {"sentencepiece.bpe.model", "spiece.model", "tokenizer.json"}
    assert tokenizer_files(M2M_100.vocabulary, files) == {"sentencepiece.bpe.model", "vocab.json", *added}
    assert tokenizer_files(MBART.vocabulary, files) == {"sentencepiece.bpe.model", *added}
    assert tokenizer_files(T5.vocabulary, files) == {"spiece.model", *added}
    assert tokenizer_files(T5.vocabulary, {"tokenizer.json"}) == added


def test_an_interrupted_transfer_continues_where_it_ended(hub, monkeypatch):
    """huggingface_hub keeps the complete chunks of a transfer. By default, a chunk has 10 MiB."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cuts["model.safetensors"] = 1
    folder, _ = locate(NAME)
    received = (hub.folder / "model.safetensors").stat().st_size // 2
    ranges = [start for method, file, start in hub.log if (method, file) == ("GET", "model.safetensors")]
    assert ranges == [None, f"bytes={received // 1000 * 1000}-"]
    assert files_of(folder) == same_as(hub)


@pytest.mark.parametrize("file", ["model.safetensors", "vocab.json"])
def test_a_damaged_file_is_refused_and_downloaded_again(hub, tmp_path, capsys, file):
    hub.damaged = {file}
    assert main(["import", NAME, f"--output={tmp_path / 'run'}"]) == 2
    message = (
        f"{file} of {PINNED} is damaged.* Repeat the import.* checksum must be [0-9a-f]{{40,64}}. Received: [0-9a-f]"
    )
    assert re.search(message, capsys.readouterr().err) and not (tmp_path / "run").exists()
    hub.damaged = set()
    hub.log.clear()
    folder, _ = locate(NAME)
    assert hub.downloads[0] == file and files_of(folder) == same_as(hub)


def test_a_file_of_the_cache_that_changed_is_refused(hub):
    folder, _ = locate(NAME)
    (folder / "model.safetensors").write_bytes(b"other")
    with pytest.raises(ValueError, match="model.safetensors of .* is damaged"):
        locate(NAME)
    assert files_of(locate(NAME)[0]) == same_as(hub)


def test_weights_of_unsupported_models_are_not_downloaded(hub, tmp_path):
    config = json.loads((hub.folder / "config.json").read_text())
    for changes, message in (
        ({"model_type": "bart"}, f"{PINNED} cannot be imported:\n- `model_type` must be one of"),
        ({"scale_embedding": 3}, f"{PINNED} cannot be imported:\n- `scale_embedding` must be"),
        (None, f"config.json of {PINNED} cannot be read"),
    ):
        (hub.folder / "config.json").write_text(json.dumps(changes and {**config, **changes}))
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / "cache/models--tiny--marian/snapshots" / COMMIT / "config.json").unlink()
        with pytest.raises(ValueError, match=message):
            locate(NAME)
    (hub.folder / "config.json").unlink()
    with pytest.raises(ValueError, match=f"{PINNED} cannot be imported: config.json is missing"):
        locate(NAME)
    assert {*hub.downloads} == {"config.json"}


def test_weights_beside_another_tokenizer_are_not_downloaded(hub):
    (hub.folder / "tokenization_own.py").touch()
    with pytest.raises(ValueError, match=f"{PINNED} cannot be imported:\n- a tokenizer in Python is not supported"):
        locate(NAME)
    assert {*hub.downloads} == READ - {"model.safetensors"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf://tiny/none", "hf://tiny/none cannot be downloaded: the repository does not exist or is private"),
        (f"{NAME}@v9", f"{NAME}@v9 cannot be downloaded: the revision does not exist"),
        ("hf://marian", "must have a name such as hf://owner/name .*Received: hf://marian"),
        ("hf://tiny/marian/config.json", "must have a name .*Received: hf://tiny/marian/config.json"),
        ("hf://tiny/marian@", "must have a name .*Received: hf://tiny/marian@"),
        ("hf://tiny/a--b", "tiny/a--b"),
    ],
)
def test_a_name_that_is_wrong_is_an_error(hub, name, message, tmp_path, capsys):
    assert main(["import", name, f"--output={tmp_path / 'run'}"]) == 2
    output, error = capsys.readouterr()
    assert re.search(f"keras-transformer import: error: .*{message}", error) and error.count("\n") == 1
    assert output == "" and hub.log == [] and not (tmp_path / "run").exists()


def test_a_gated_repository_is_an_error(hub):
    hub.gated = True
    with pytest.raises(ValueError, match=f"{NAME} cannot be downloaded: the repository is gated. .*HF_TOKEN"):
        locate(NAME)


def test_a_hub_that_does_not_answer_is_an_error(hub):
    hub.shutdown()
    hub.server_close()
    with pytest.raises(ValueError, match=f"{NAME} cannot be downloaded: Connect.*: "):
        locate(NAME)


def test_the_extra_is_named(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"huggingface_hub is not installed: pip install '.*\[hub\]'"):
        locate(NAME)
