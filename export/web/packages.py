"""The npm packages of the format `web`: npm downloads them, and they are kept in the user's cache folder."""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from keras_transformer.storage.atomic_files import atomic_write

#: Environment variable with the folder of the downloaded packages. Default: a folder in the user's cache.
FOLDER = "KERAS_TRANSFORMER_NPM_PACKAGES"
#: Seconds after which a download has failed.
_TIMEOUT = 600


class Package(NamedTuple):
    """A version of an npm package.

    Attributes:
        name: its name.
        version: its version.
        sha512: SHA-512 hash of its archive in base64, as in `npm view NAME dist.integrity`.
        licence: its licence.
    """

    name: str
    version: str
    sha512: str
    licence: str

    @property
    def spec(self) -> str:
        """The argument of `npm pack`."""
        return f"{self.name}@{self.version}"

    @property
    def archive(self) -> str:
        """Name of the file that `npm pack` writes."""
        return f"{self.name}-{self.version}.tgz"


ONNXRUNTIME = Package(
    "onnxruntime-web",
    "1.30.0",
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
    "MIT",
)
SENTENCEPIECE = Package(
    "sentencepiece-js",
    "1.1.0",
    "HN6teKCRO9tz37zbaNI3i+vMZ/JRWDt6kmZ7OVpzQv1jZHyYNmf5tE7CFpIYN86+y9TLB0cuscMdA3OHhT/MhQ==",
    "Apache-2.0",
)
PACKAGES = (ONNXRUNTIME, SENTENCEPIECE)


def require_packages() -> None:
    """Downloads the packages that are not in the folder yet. Raises `ValueError` if that is not possible."""
    for package in PACKAGES:
        file = packages_folder() / package.archive
        if not file.is_file():
            _download(package)
        elif not _is_expected(package, file):
            raise ValueError(f"{file} is not the archive of {package.spec}. Delete it, and it is downloaded again")


def read_files(package: Package, names: list[str]) -> dict[str, bytes]:
    """The contents of files of a downloaded package, by their paths in it."""
    with tarfile.open(packages_folder() / package.archive) as archive:
        members = {name: archive.extractfile(f"package/{name}") for name in names}
        return {name: member.read() for name, member in members.items() if member}


def packages_folder() -> Path:
    """The folder of the downloaded packages, which need not exist."""
    if folder := os.environ.get(FOLDER):
        return Path(folder)
    if sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "keras-transformer" / "npm"


def _is_expected(package, file):
    with file.open("rb") as stream:
        return base64.b64encode(hashlib.file_digest(stream, "sha512").digest()).decode() == package.sha512


def _download(package):
    folder = packages_folder()
    if not shutil.which("npm"):
        raise ValueError(
            f"The format web needs the npm package {package.spec}, and npm is not installed. Install it: "
            "apt-get install npm (or https://nodejs.org). "
            f"Or run {_command()} on another machine, copy the files to {folder}, or to a folder named by {FOLDER}"
        )
    print(f"Downloading {package.spec} to {folder} with npm", file=sys.stderr)
    # An empty working directory, because npm also reads the configuration of the project that it runs in.
    with tempfile.TemporaryDirectory() as temporary:
        _pack(package, temporary)
        file = Path(temporary) / package.archive
        if not _is_expected(package, file):
            raise ValueError(f"npm has downloaded another archive than that of {package.spec}: its hash is wrong")
        with atomic_write(folder / package.archive) as place:
            shutil.copyfile(file, place)


def _pack(package, folder):
    command = ["npm", "pack", "--silent", "--ignore-scripts", package.spec]
    try:
        completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT)
        reason = completed.stderr.strip() if completed.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    if reason is None and not (Path(folder) / package.archive).is_file():
        reason = f"no {package.archive}"
    if reason is not None:
        raise ValueError(
            f"npm could not download {package.spec}: {reason or 'no message'}. Without a network, run {_command()} on "
            f"another machine and copy the files to {packages_folder()}, or to a folder named by {FOLDER}"
        )


def _command():
    return f"`npm pack {' '.join(package.spec for package in PACKAGES)}`"
