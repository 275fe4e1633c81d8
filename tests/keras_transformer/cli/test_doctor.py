"""`doctor`, on packages that are made for the test: each is a folder with metadata."""

import importlib.metadata
import shutil
import sys

import keras
import pytest

from keras_transformer.cli import main
from keras_transformer.version import DISTRIBUTION

#: What this package requires in these tests.
REQUIRES = (
    *("tensorflow>=2", "sentencepiece>=0.2", 'jax>=0.7; extra == "jax"', 'rich>=1; extra == "demo"'),
    *('tensorflow[fast]>=2; extra == "gpu"', 'ctranslate2>=4; extra == "demo"'),
)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a package, in front of the packages that are really installed."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def install(name, version="9.1", requires=()):
        stem = name.replace("-", "_")
        for path in folder.glob(f"{stem}-*"):
            shutil.rmtree(path)
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {text}" for text in requires)]
        lines += [f"Provides-Extra: {extra}" for extra in ("gpu", "jax", "demo") if requires]
        (folder / f"{stem}-{version}.dist-info").mkdir()
        (folder / f"{stem}-{version}.dist-info" / "METADATA").write_text("\n".join(lines) + "\n")

    return install


@pytest.fixture(autouse=True)
def packages(install):
    """All that is required."""
    install(DISTRIBUTION, requires=REQUIRES)
    install("tensorflow", requires=['cuda>=12; extra == "fast"'])
    for name in ("sentencepiece", "jax", "rich", "ctranslate2"):
        install(name)
    install("cuda", "12.1")


@pytest.fixture
def doctor(capsys):
    """Exit status and lines of the command."""

    def doctor():
        status = main(["doctor"])
        return status, capsys.readouterr().out.splitlines()

    return doctor


def test_a_complete_installation_is_ok(doctor):
    status, lines = doctor()
    assert status == 0
    assert lines[0].startswith(f"{DISTRIBUTION} ") and lines[1].endswith(sys.executable)
    assert "ok       required: tensorflow 9.1, sentencepiece 9.1" in lines
    assert "ok       extra demo: rich 9.1, ctranslate2 9.1" in lines
    assert lines[-1].startswith(f"ok       backend: {keras.backend.backend()}, on ")
    assert "pu" in lines[-1] or "cuda" in lines[-1]


def test_missing_and_old_packages_come_with_the_command_that_installs_them(install, doctor):
    install(DISTRIBUTION, requires=[text.replace("rich", "no-such") for text in REQUIRES])
    install("ctranslate2", "1")
    install("cuda", "11")
    status, lines = doctor()
    assert status == 0  # They belong to extras.
    for problem, extra in (
        ("extra demo: no-such (not installed), ctranslate2 1 (must be >=4)", "demo"),
        ("extra gpu: cuda 11 (must be >=12)", "gpu"),
    ):
        at = lines.index(f"missing  {problem}")
        assert lines[at + 1] == f"         pip install '{DISTRIBUTION}[{extra}]'"


def test_the_status_is_1_without_a_required_package(install, doctor):
    install("sentencepiece", "0.1")
    status, lines = doctor()
    assert status == 1 and "missing  required: sentencepiece 0.1 (must be >=0.2)" in lines


@pytest.mark.parametrize(
    ("error", "line", "command"),
    [
        (ModuleNotFoundError("No module named 'jax'", name="jax"), "No module named 'jax'", f"{DISTRIBUTION}[jax]"),
        (OSError("libcuda is missing"), "OSError: libcuda is missing", DISTRIBUTION),
    ],
)
def test_a_backend_that_cannot_be_imported(error, line, command, doctor, monkeypatch):
    def backend():
        raise error

    monkeypatch.setattr(keras.backend, "backend", backend)
    status, lines = doctor()
    assert status == 1 and lines[-2].startswith("missing  backend") and line in lines[-2]
    assert lines[-1] == f"         pip install '{command}'"


def test_a_backend_that_is_not_supported(doctor, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "openvino")
    monkeypatch.delattr(keras.distribution, "list_devices")  # It fails on such a backend.
    status, lines = doctor()
    assert status == 1 and lines[-1].endswith("KERAS_BACKEND to one of tensorflow, jax, torch")


def test_the_package_itself_is_not_installed(monkeypatch, capsys):
    def metadata(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", metadata)
    assert main(["doctor"]) == 2
    assert f"error: {DISTRIBUTION} is not installed: pip install --editable /" in capsys.readouterr().err
