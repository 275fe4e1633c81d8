"""Folders that a record marks as this package's: whether a folder is free, its record and format, its lock, hashes."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write, clean_up


class ModelDirectoryError(ValueError):
    """Raised if a folder cannot be used as requested. The message gives the reason."""


class RecordedFolder:
    """A folder with a record file. Files are replaced or deleted only in a folder that contains it.

    Args:
        path: the folder, which need not exist.
    """

    record_name: str
    #: The newest format that can be read; `None` for records without a format.
    format_version: int | None = None
    #: For messages about a folder without a record: "Not a {kind}", "… is not empty and {foreign}".
    kind: str
    foreign: str
    #: Names of the subfolders to which files are written atomically.
    subfolders: tuple[str, ...] = ()

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.record_file = self.path / self.record_name

    def is_free(self) -> bool:
        """Whether the folder has no record. Other files without a record are an error.

        Temporary files that killed processes have left do not count.
        """
        if self.record_file.exists():
            return False
        is_empty = self.path.is_dir() and all(path.name.startswith(TEMPORARY) for path in self.path.iterdir())
        if self.path.exists() and not is_empty:
            raise ModelDirectoryError(f"{self.path} is not empty and {self.foreign} (no {self.record_name})")
        return True

    def record(self) -> dict[str, Any]:
        """Reads the record.

        Raises:
            ModelDirectoryError: if it does not exist, cannot be read, or has a newer format.
        """
        if not self.record_file.is_file():
            why = "; it is a file" if self.path.is_file() else "" if self.path.exists() else "; no such directory"
            raise ModelDirectoryError(f"Not a {self.kind}: {self.path} (no {self.record_name}{why})")
        record = self._load()
        if self.format_version is None:
            return record
        with parsing(self.record_file):
            version = int(record["format"])
        if version > self.format_version:
            raise ModelDirectoryError(
                f"{self.path} has format {version}; this version reads formats up to {self.format_version}"
            )
        return {**record, "format": version}

    def _load(self) -> dict[str, Any]:
        return read_json(self.record_file)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder against other writers. The system releases the lock of a killed process.

        The folder is created if it does not exist, and removed if it is empty at the end. Temporary files of killed
        processes are deleted.

        Raises:
            ModelDirectoryError: if another process holds the lock.
            OSError: if a temporary file cannot be deleted.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        # Locks the folder itself, so no lock file is left behind.
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            lock(descriptor, self.path)
            try:
                for name in ("", *self.subfolders):
                    clean_up(self.path / name)
                yield
            finally:
                with contextlib.suppress(OSError):  # Folders that are not empty are kept.
                    for folder in made:
                        folder.rmdir()
        finally:
            os.close(descriptor)


def lock(file: IO | int, path: Path) -> None:
    """Locks an open file or folder until it is closed. An error names the folder that is in use, `path`."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ModelDirectoryError(f"{path} is in use by another process") from error


@contextlib.contextmanager
def parsing(path: Path) -> Iterator[None]:
    """Names a file in the errors that its contents cause."""
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise ModelDirectoryError(f"Unreadable {path}: {error!r}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. An error names the file."""
    with parsing(path):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ModelDirectoryError(f"Unreadable {path}: not a JSON object")
    return content


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes a JSON object atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def hash_of_files(paths: Iterable[Path | str]) -> str:
    """The SHA-256 hash of the hashes of files, in hexadecimal digits."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
