"""`doctor`, on packages that are made for the test: each is a folder with metadata, and a module if it has one."""

import importlib.metadata
import json
import re
import shutil
import sys

import keras
import pytest

from keras_transformer.cli import main
from keras_transformer.cli.doctor.backend import check_backend
from keras_transformer.cli.doctor.requirements import Requirements
from keras_transformer.export.registry import FORMATS
from keras_transformer.version import DISTRIBUTION

#: What this package requires in these tests.
REQUIRES = (
    *("tensorflow>=2", "keras>=3", "tensorflow-text>=2", "onnxruntime>=1", "sentencepiece>=0.2"),
    *('jax>=0.7; extra == "jax"', 'torch==9.1; extra == "torch"', 'ctranslate2>=4; extra == "ctranslate2"'),
    *('tensorflow[fast]>=2; extra == "gpu"', 'rich>=1; extra == "demo"', 'ctranslate2>=4; extra == "demo"'),
)
TENSORFLOW = """
import types
gpu = types.SimpleNamespace(name="/physical_device:GPU:0")
details = types.SimpleNamespace(get_device_details=lambda device: {"device_name": "Fast One"})
config = types.SimpleNamespace(list_physical_devices=lambda: [gpu], experimental=details)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a package, in front of the packages that are really installed."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def install(name, version="9.1", requires=(), program=""):
        stem = name.replace("-", "_")
        for path in folder.glob(f"{stem}-*"):
            shutil.rmtree(path)
        extras = re.findall(r"extra == .(\w+)", " ".join(requires))
        lines = [f"Name: {name}", f"Version: {version}", *(f"Provides-Extra: {extra}" for extra in extras)]
        lines += [f"Requires-Dist: {text}" for text in requires]
        (folder / f"{stem}-{version}.dist-info").mkdir()
        (folder / f"{stem}-{version}.dist-info" / "METADATA").write_text("\n".join(lines) + "\n")
        (folder / f"{stem}.py").write_text(program)

    return install


@pytest.fixture(autouse=True)
def packages(install, tmp_path, monkeypatch):
    """All that is required and its extras, and a home without keras.json."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    (tmp_path / "home").mkdir()
    install(DISTRIBUTION, requires=REQUIRES)
    install("tensorflow", requires=['cuda>=12; extra == "fast"'], program=TENSORFLOW)
    for name in ("keras", "tensorflow-text", "onnxruntime", "sentencepiece", "jax", "torch", "ctranslate2", "rich"):
        install(name, program="devices = lambda: []" if name == "jax" else "")
    install("torch", program="import types; cuda = types.SimpleNamespace(device_count=lambda: 0)")
    install("cuda", "12.1")


@pytest.fixture
def doctor(capsys):
    """Exit status and report of the command."""

    def doctor(*options):
        status = main(["doctor", "--json", *options])
        return status, json.loads(capsys.readouterr().out)

    return doctor


def not_ok(report):
    """What is not ok: name -> state, detail and command."""
    findings = [report["backend"], *report["packages"], *report["extras"], *report["runtimes"]]
    return {f["name"]: [f["state"], f["detail"], f["command"]] for f in findings if f["state"] != "ok"}


def test_all_is_there(doctor, capsys):
    status, report = doctor()
    assert (status, not_ok(report), report["devices"]) == (0, {}, None)
    assert main(["doctor"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"{DISTRIBUTION} " in text and f"Python {sys.version.split()[0]} {sys.executable}" in text
    assert "Backend ok tensorflow the default of Keras Packages ok tensorflow 9.1 ok keras 9.1" in text
    assert "ok demo rich 9.1, ctranslate2 9.1" in text and "ok saved_model tensorflow 9.1, tensorflow-text 9.1" in text
    assert "`train` and `translate` have what they need." in text


def test_what_is_missing_comes_with_the_command_that_installs_it(install, doctor, capsys):
    install(DISTRIBUTION, requires=[text.replace("rich", "no-such").replace("sentence", "no") for text in REQUIRES])
    install("onnxruntime", "0.9")
    install("cuda", "11")
    status, report = doctor()
    assert status == 1 and not report["ready"]
    gpu, demo = (f"pip install '{DISTRIBUTION}[{extra}]'" for extra in ("gpu", "demo"))
    onnx = ["faulty", "onnxruntime 0.9 is installed; required is >=1", "pip install 'onnxruntime>=1'"]
    assert not_ok(report) == {
        "nopiece": ["missing", "not installed: nopiece", "pip install 'nopiece>=0.2'"],
        "onnxruntime": [onnx[0], f"{onnx[1]}; used by `translate --runtime onnx`", onnx[2]],
        "gpu": ["faulty", "cuda 11 is installed; required is >=12", gpu],
        "demo": ["missing", "not installed: no-such", demo],
        **{name: onnx for name in ("onnx", "onnx_int8", "onnx_float16")},
    }
    assert main(["doctor"]) == 1
    assert f"missing  demo         not installed: no-such\n{' ' * 24}{demo}\n" in capsys.readouterr().out


def test_the_status_is_that_of_train_and_translate(install, doctor):
    install("tensorflow-text", "1")
    install("ctranslate2", "1")
    status, report = doctor()
    assert status == 0 and not_ok(report).keys() == {"tensorflow-text", "saved_model", "ctranslate2", "demo"}
    install("keras", "2")
    status, report = doctor()
    assert status == 1 and report["runtimes"][0]["state"] == "faulty"


def test_damaged_metadata(install, doctor, tmp_path):
    (tmp_path / "packages" / "sentencepiece-9.1.dist-info" / "METADATA").unlink()
    install("keras", "three")
    status, report = doctor()
    assert status == 1
    assert not_ok(report)["sentencepiece"][:2] == ["faulty", "sentencepiece has no readable version. Received: ''"]
    assert not_ok(report)["keras"][:2] == ["faulty", "keras has no readable version. Received: 'three'"]


BROKEN = {
    "tensorflow": (
        "try:\n import no_lib\nexcept ImportError:\n raise ImportError('Traceback:\\n...\\nSee the guide')",
        "ModuleNotFoundError: No module named 'no_lib'",
    ),
    "keras": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "`import keras` crashed (SIGKILL)"),
    "sentencepiece": ("import os; os._exit(0)", "`import sentencepiece` ended the process with status 0"),
    "jax": ("devices = None", "TypeError: 'NoneType' object is not callable"),
    "ctranslate2": ("raise SystemExit", "SystemExit"),
}


def test_packages_that_cannot_be_imported(install, doctor):
    for name, (program, _) in BROKEN.items():
        install(name, program=program)
    assert doctor()[0] == 0
    status, report = doctor("--devices")
    found = not_ok(report)
    assert status == 1
    for name, (_, error) in BROKEN.items():
        requirement = next(text.partition(";")[0] for text in REQUIRES if text.startswith(name))
        state, detail, command = found[name]
        assert (state, command) == ("faulty", f"pip install --force-reinstall '{requirement}'")
        assert f"{name} cannot be imported: {error}" in detail
    assert found.keys() - BROKEN.keys() == {"saved_model", "gpu", "demo"}
    assert [finding["name"] for finding in report["devices"]] == ["torch"]


def test_devices(doctor, capsys):
    status, report = doctor("--devices")
    assert (status, not_ok(report)) == (0, {})
    found = {finding["name"]: finding["detail"] for finding in report["devices"]}
    assert found == {"tensorflow": "GPU:0 (Fast One)", "torch": "cpu"}
    main(["doctor", "--devices"])
    assert "Devices\n  ok       tensorflow  GPU:0 (Fast One)\n" in capsys.readouterr().out


def test_the_backend_is_that_of_keras(monkeypatch):
    monkeypatch.undo()
    assert check_backend(Requirements(), {}).name == keras.backend.backend()


#: keras.json, KERAS_BACKEND -> backend, state, detail.
BACKENDS = {
    "file": ('{"backend": "jax"}', None, "jax", "ok", "set in {file}"),
    "file without a backend": ("{}", None, "tensorflow", "ok", "the default of Keras"),
    "variable": ('{"backend": "jax"}', "torch", "torch", "ok", "set in the environment variable KERAS_BACKEND"),
    "no JSON": ("backend", None, "tensorflow", "ok", "the default of Keras, which ignores {file}: it is not JSON"),
    "no object": ("[]", "jax", "jax", "faulty", "Keras cannot read {file}: it must hold a JSON object"),
    "no file": (None, "jax", "jax", "faulty", "Keras cannot read {file}: Is a directory"),
    "unknown": ("{}", "caffe", "caffe", "faulty", "the backend must be one of tensorflow, jax, torch"),
}


@pytest.mark.parametrize(("text", "variable", "name", "state", "detail"), BACKENDS.values(), ids=BACKENDS)
def test_the_backend_of_keras(text, variable, name, state, detail, doctor, tmp_path, monkeypatch):
    file = tmp_path / "home" / "keras.json"
    file.mkdir() if text is None else file.write_text(text)
    if variable:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    status, report = doctor()
    assert (report["backend"]["name"], report["backend"]["state"]) == (name, state)
    assert report["backend"]["detail"].endswith(detail.format(file=file))
    assert status == (state != "ok") and report["runtimes"][0]["state"] == state


def test_the_backend_is_not_installed(install, doctor):
    install("tensorflow", "1")
    status, report = doctor()
    found = "the default of Keras; tensorflow 1 is installed; required is >=2"
    assert status == 1 and not_ok(report)["tensorflow"][1] == f"{found[22:]}; used by `export`"
    assert report["backend"]["detail"] == found and report["backend"]["command"] == "pip install 'tensorflow>=2'"


def test_the_package_itself_is_not_installed(monkeypatch, capsys):
    def metadata(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", metadata)
    assert main(["doctor"]) == 2
    assert f"error: {DISTRIBUTION} is not installed: pip install --editable /" in capsys.readouterr().err


def test_every_client_package_is_required_by_the_package(monkeypatch):
    monkeypatch.undo()
    requirements = Requirements()
    for format in FORMATS.values():
        assert all(requirements.find(name) for name in format.client_packages)
