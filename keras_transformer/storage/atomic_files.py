"""Atomic writes of files and folders, and deletion that does not follow links."""

import contextlib
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from keras_transformer.storage.exhaustion import full_disk

#: Name prefix of temporary folders. No other program uses it, so such folders can be deleted safely.
TEMPORARY = ".tmp-keras-transformer-"
#: Name of a replaced folder in the temporary folder.
_REPLACED = "replaced"
#: The system closes standard input when the process that started this program ends.
_DELETER = "import shutil, sys; sys.stdin.buffer.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"


@contextlib.contextmanager
def atomic_write(path: Path, owns_folder: bool = True) -> Iterator[Path]:
    """Context manager that writes a file or folder atomically: it replaces `path` if the block raises no error.

    Parent folders are created. If `path` is a link, the link is replaced, not its target.

    Args:
        path: a file or folder, which need not exist.
        owns_folder: whether a later command calls `clean_up` for the parent folder, in case this process is killed.
            If not, another process deletes the temporary folder then.

    Yields:
        A temporary path to write to, with the same name.

    Raises:
        OSError: if a file would replace a folder or a folder would replace a file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=path.parent))
    temporary = folder / path.name
    with contextlib.nullcontext() if owns_folder else _deleted_after_kill(folder):
        try:
            with naming(path):
                yield temporary
            if temporary.is_dir() and path.is_dir():
                _swap(path, temporary, folder / _REPLACED)
            else:
                temporary.rename(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _deleted_after_kill(folder):
    """Starts a process that deletes a folder when this process ends, by any signal, which this one need not handle."""
    command = [sys.executable, "-ISc", _DELETER, str(folder.resolve())]
    null = subprocess.DEVNULL
    # In a session of its own, it does not receive the signals that a terminal sends to this process.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True):
        yield


def clean_up(folder: Path) -> None:
    """Deletes the temporary folders that killed processes have left in a folder, which need not exist.

    A process that was killed while it replaced a folder may have left neither the old folder nor the new one in its
    place. The new one, which is complete, is then put there.

    Raises:
        OSError: if a path cannot be deleted. The message contains the path.
    """
    for replaced in folder.glob(f"{TEMPORARY}*/{_REPLACED}"):
        for new in replaced.parent.iterdir():
            if new != replaced and not (folder / new.name).exists():
                new.rename(folder / new.name)
    delete_matching(folder, f"{TEMPORARY}*")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds a file name to write errors without one or with a temporary one, such as a full disk.

    Args:
        path: the file or folder that the block writes.

    Raises:
        OSError: the error with the file name, also if a library has raised an error of its own instead.
    """
    try:
        yield
    except Exception as error:
        number, name = full_disk(error), getattr(error, "filename", None)
        if number is None or (name is not None and TEMPORARY not in str(name)):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def delete(path: Path) -> None:
    """Deletes a file, or a folder with its contents. A link is removed but its target is kept, with a message.

    Raises:
        OSError: if the path cannot be deleted. The message contains the path.
    """
    try:
        if path.is_symlink():
            print(f"Removed the link {path}; its target {os.readlink(path)} is kept", file=sys.stderr)
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"Cannot delete {path}: {(error.strerror or str(error)).lower()}") from error


def delete_matching(folder: Path, *patterns: str) -> None:
    """Deletes the files in a folder that match patterns, and subfolders that become empty. Links are not followed.

    Args:
        folder: the folder, which need not exist.
        *patterns: one name pattern per level: `"logs", "*.txt"` matches the text files in the subfolder `logs`.
    """
    first, *others = patterns
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in (path for path in found if fnmatch.fnmatchcase(path.name, first)):
        if not others or path.is_symlink():
            delete(path)
        elif path.is_dir():
            delete_matching(path, *others)
            with contextlib.suppress(OSError):  # Not empty.
                path.rmdir()


def _swap(path, temporary, aside):
    path.rename(aside)
    try:
        temporary.rename(path)
    except OSError:
        aside.rename(path)
        raise
