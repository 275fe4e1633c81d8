"""The model directory: the only place that knows its file names, its format and how it is written.

Everything is written to a temporary name beside its place and renamed when whole.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1

#: The shared tokenizer, or the source's and the target's.
_TOKENIZERS = ("tokenizer.model", "source_tokenizer.model", "target_tokenizer.model")
#: How the names of folders begin in which files are written before they take their place.
TEMPORARY = ".tmp-"
_ERRORS_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class ModelDirectoryError(ValueError):
    """A directory that cannot be used as asked; the message says why."""


class ModelDirectory:
    """Names, record and state of one model directory.

    Args:
        path: the directory; it need not exist.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.model_file = self.path / "model.keras"
        self.checkpoints = self.path / "checkpoints"
        self.tokens = self.path / "tokens"
        self.logs = self.path / "logs"
        self.curve_file = self.logs / "training_curve.png"
        self.export = self.path / "export"
        self.verification_file = self.export / "verification.json"

    @property
    def tokenizer_files(self) -> tuple[Path, Path]:
        """Files of the source's and the target's tokenizer: one and the same where it is shared."""
        shared, source, target = self.possible_tokenizer_files
        return (source, target) if source.exists() else (shared, shared)

    @property
    def possible_tokenizer_files(self) -> tuple[Path, ...]:
        """Those of a shared and of separate tokenizers."""
        return tuple(self.path / name for name in _TOKENIZERS)

    def exported(self, name: str) -> Path:
        """The folder of an export, which need not be there.

        Args:
            name: the export's; see `export_name`.
        """
        return self.export / name

    def tokenizer_models(self) -> tuple[bytes, ...]:
        """The serialised SentencePiece models, `(shared,)` or `(source, target)`, as `write_tokenizers` takes them."""
        return tuple(path.read_bytes() for path in dict.fromkeys(self.tokenizer_files))

    def write_tokenizers(self, models: tuple[bytes, ...]) -> None:
        """Writes one shared tokenizer or a pair.

        Args:
            models: serialised SentencePiece models, `(shared,)` or `(source, target)`.
        """
        for path in self.possible_tokenizer_files:
            path.unlink(missing_ok=True)
        names = _TOKENIZERS[:1] if len(models) == 1 else _TOKENIZERS[1:]
        for name, model in zip(names, models, strict=True):
            with replacing(self.path / name) as temporary:
                temporary.write_bytes(model)

    def record(self) -> dict[str, Any]:
        """The contents of `config.yaml`.

        Raises:
            ModelDirectoryError: if there is none, it cannot be read, or its format is a newer one.
        """
        import yaml  # Here, since clients that only translate do without.

        if not self.config_file.is_file():
            raise ModelDirectoryError(f"Not a model directory: {self.path} (no config.yaml)")
        try:
            record = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
            version, _ = int(record["format"]), record["finished"]
        except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, ValueError) as error:
            raise ModelDirectoryError(f"Unreadable {self.config_file}: {error!r}") from error
        if version > FORMAT_VERSION:
            raise ModelDirectoryError(
                f"{self.path} has format {version}; this version reads formats up to {FORMAT_VERSION}"
            )
        return record

    def write_record(self, record: dict[str, Any], finished: bool) -> None:
        """Writes `config.yaml`.

        Args:
            record: what is recorded besides format and state.
            finished: whether the model is trained.
        """
        import yaml

        with replacing(self.config_file) as temporary:
            text = yaml.safe_dump({"format": FORMAT_VERSION, "finished": finished, **record}, sort_keys=False)
            temporary.write_text(text, encoding="utf-8")

    def require_finished(self) -> dict[str, Any]:
        """The record of a directory that holds a trained model.

        Raises:
            ModelDirectoryError: if it does not.
        """
        record = self.record()
        missing = [str(f) for f in dict.fromkeys([self.model_file, *self.tokenizer_files]) if not f.is_file()]
        if not record.get("finished") or missing:
            detail = f"missing: {', '.join(missing)}" if missing else "its training has not finished"
            raise ModelDirectoryError(f"{self.path} holds no finished model ({detail})")
        return record

    def is_begun(self, record: dict[str, Any], overwrite: bool = False) -> bool:
        """Whether an unfinished run of this very configuration lies there, to be resumed.

        Args:
            record: the configuration about to run.
            overwrite: begin anew, whatever another run has left.

        Raises:
            ModelDirectoryError: if a finished model or another configuration's run lies there, or
                files that are no run's, and `overwrite` is false.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ModelDirectoryError(f"{self.path} is a file, not a directory")
        if not self.config_file.exists():
            self._require_no_others()
            return False
        found = self.record()
        if overwrite:
            return False
        if found["finished"]:
            raise ModelDirectoryError(f"{self.path} holds a finished model; --overwrite replaces it")
        differing = _differences(record, {name: found.get(name) for name in record})
        if differing:
            raise ModelDirectoryError(
                f"{self.path} holds an unfinished run of another configuration, differing in: {'; '.join(differing)}"
            )
        return True

    def _require_no_others(self):
        """Refuses a folder of somebody else's files; those of a run killed at its beginning are ours."""
        found = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
        others = {
            name for name in found - {*_TOKENIZERS, "logs", "checkpoints", "tokens"} if not name.startswith(TEMPORARY)
        }
        if others:
            raise ModelDirectoryError(f"{self.path} is not empty and is no model directory")

    def clear(self) -> None:
        """Deletes what a run writes, but for the tokens that it begins with; other files stay."""
        for folder in (self.checkpoints, self.logs, self.export):
            shutil.rmtree(folder, ignore_errors=True)
        for name in ("model.keras", *_TOKENIZERS):
            (self.path / name).unlink(missing_ok=True)
        self.config_file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory, made if need be, against other writers; a killed process holds nothing.

        Folders that were made and are empty in the end are removed.

        Raises:
            ModelDirectoryError: if another process holds it.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        # On the directory itself, so that no lock file is left behind.
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ModelDirectoryError(f"{self.path} is in use by another process") from error
        try:
            for folder in (self.path, self.checkpoints, self.tokens, self.export):
                for leftover in folder.glob(f"{TEMPORARY}*"):  # Of processes that were killed.
                    shutil.rmtree(leftover, ignore_errors=True)
            yield
        finally:
            os.close(descriptor)
            with contextlib.suppress(OSError):  # One that is not empty stays, and so do those above it.
                for folder in made:
                    folder.rmdir()


def export_name(format: str, quantize: str | None = None) -> str:
    """Name of an export, of its folder and of the runtime that runs it.

    Args:
        format: such as `"onnx"`.
        quantize: type of its weights where it is not float32, such as `"int8"`.

    Example:

    >>> export_name("onnx"), export_name("onnx", "int8")
    ('onnx', 'onnx_int8')
    """
    return f"{format}_{quantize}" if quantize else format


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    Args:
        path: a file or a folder that exists or not; its parent is made.

    Yields:
        The path to write to, with the same suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=path.parent))
    temporary = folder / path.name
    try:
        with naming(path):
            yield temporary
        if path.is_dir():
            _swap(path, temporary, folder / "replaced")
        else:
            temporary.rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def _swap(path, temporary, aside):
    path.rename(aside)
    try:
        temporary.rename(path)
    except OSError:
        aside.rename(path)
        raise


def _differences(wanted, found, prefix=""):
    """`name: found -> wanted` for every leaf in which two nested records differ."""
    lines = []
    for key in dict.fromkeys([*wanted, *found]):
        ours, theirs = wanted.get(key), found.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            lines += _differences(ours, theirs, f"{prefix}{key}.")
        elif ours != theirs:
            lines.append(f"{prefix}{key}: {theirs!r} there, {ours!r} asked for")
    return lines
