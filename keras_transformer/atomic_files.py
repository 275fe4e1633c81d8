"""Files and folders that take their place when they are complete, and deletion that follows no links."""

import contextlib
import errno
import fnmatch
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: How the names of folders begin in which files are written before they take their place: no other program's do.
TEMPORARY = ".tmp-keras-transformer-"
_ERRORS_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    Args:
        path: a file or a folder that exists or not; its parent is made. A link is replaced, not what it points to.

    Yields:
        The path to write to, with the same suffix.

    Raises:
        OSError: if a file is to replace a folder, or a folder a file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=path.parent))
    temporary = folder / path.name
    try:
        with naming(path):
            yield temporary
        if temporary.is_dir() and path.is_dir():
            _swap(path, temporary, folder / "replaced")
        else:
            temporary.rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # What stays is deleted under the next lock, or named there.


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds a file's name to errors of writing that bear none, such as that of a full disk.

    Args:
        path: what the block writes.

    Raises:
        OSError: with the name.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _ERRORS_OF_WRITING or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def delete(path: Path) -> None:
    """Deletes a file or a folder with all that is in it. A link is removed and never followed; the user is told.

    Args:
        path: it need not exist.

    Raises:
        OSError: naming the path, if it cannot be deleted.
    """
    try:
        if path.is_symlink():
            print(f"{path} was a link and is removed; {os.readlink(path)} is left as it was", file=sys.stderr)
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"Cannot delete {path}: {(error.strerror or str(error)).lower()}") from error


def delete_matching(folder: Path, *patterns: str) -> None:
    """Deletes what matches below a folder, and folders that are empty then. Links on the way are removed, not followed.

    Args:
        folder: it need not exist.
        *patterns: of names, one for each level: `"logs", "*.txt"` are the text files in the folder's `logs`.

    Raises:
        OSError: naming the path that cannot be deleted.
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
