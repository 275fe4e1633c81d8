"""The npm packages, with a program in the place of npm."""

import base64
import hashlib
import io
import tarfile

import pytest

from keras_transformer.cli import main
from keras_transformer.export.web import packages
from keras_transformer.export.web.packages import Package, packages_folder, read_files, require_packages


def archive(text):
    """An npm archive with one file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        info = tarfile.TarInfo("package/dist/index.js")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    return stream.getvalue()


@pytest.fixture
def package(monkeypatch, tmp_path):
    """The only package, and a cache that does not contain it."""
    data = archive(b"let x")
    (tmp_path / "registry").write_bytes(data)
    package = Package("something", "1.2.3", base64.b64encode(hashlib.sha512(data).digest()).decode(), "MIT")
    monkeypatch.setattr(packages, "PACKAGES", (package,))
    monkeypatch.delenv(packages.FOLDER, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(packages.sys, "platform", "linux")
    return package


@pytest.fixture
def npm(monkeypatch, tmp_path):
    """Makes the program that stands in the place of npm."""
    monkeypatch.setenv("PATH", f"{tmp_path}/programs", prepend=":")

    def npm(*lines):
        file = tmp_path / "programs" / "npm"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        file.chmod(0o755)

    return npm


def test_npm_downloads_a_package_once(package, npm, tmp_path, capfd):
    npm(f"echo $* > {tmp_path}/arguments", f"cp {tmp_path}/registry something-1.2.3.tgz")
    require_packages()
    assert packages_folder() == tmp_path / "cache/keras-transformer/npm"
    assert (tmp_path / "arguments").read_text().split()[-1] == "something@1.2.3"
    assert "Downloading something@1.2.3" in capfd.readouterr().err
    npm("exit 1")
    require_packages()
    assert read_files(package, ["dist/index.js"]) == {"dist/index.js": b"let x"}


def test_packages_may_come_from_a_folder(package, npm, monkeypatch, tmp_path):
    npm("exit 1")
    monkeypatch.setenv(packages.FOLDER, str(tmp_path / "copied"))
    (tmp_path / "copied").mkdir()
    (tmp_path / "registry").rename(tmp_path / "copied/something-1.2.3.tgz")
    require_packages()
    assert read_files(package, ["dist/index.js"]) == {"dist/index.js": b"let x"}


def test_npm_fails(package, npm, tmp_path):
    npm("echo 'network is unreachable' >&2; exit 1")
    message = "could not download something@1.2.3: network is unreachable. .* run `npm pack something@1.2.3` on another"
    with pytest.raises(ValueError, match=message):
        require_packages()
    npm("exit 0")
    with pytest.raises(ValueError, match="could not download something@1.2.3: no something-1.2.3.tgz"):
        require_packages()


def test_another_archive_is_refused(package, npm, tmp_path):
    npm("echo other > something-1.2.3.tgz")
    with pytest.raises(ValueError, match="another archive than that of something@1.2.3"):
        require_packages()
    assert not packages_folder().exists() or not [*packages_folder().iterdir()]
    packages_folder().mkdir(parents=True, exist_ok=True)
    (packages_folder() / package.archive).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="something-1.2.3.tgz is not the archive of something@1.2.3. Delete it"):
        require_packages()


def test_without_npm_nothing_is_exported(package, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="npm is not installed. Install it: apt-get install npm"):
        require_packages()
    (tmp_path / "model").mkdir()
    for name in ("model.keras", "tokenizer.model"):
        (tmp_path / "model" / name).touch()
    (tmp_path / "model/config.yaml").write_text("format: 2\nfinished: true\n")
    assert main(["export", str(tmp_path / "model"), "--format=web"]) == 2
    assert "needs the npm package something@1.2.3, and npm is not installed" in capsys.readouterr().err
    assert not (tmp_path / "model/export").exists()
