"""The model directory: the only place that knows its file names, its format and how it is written.

Everything is written to a temporary name beside its place and renamed when whole.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1


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
        self.logs = self.path / "logs"
        self.export = self.path / "export"
        self.saved_model = self.export / "saved_model"
        self.onnx = self.export / "onnx"
        self.verification_file = self.export / "verification.json"

    @property
    def tokenizer_files(self) -> tuple[Path, Path]:
        """Files of the source's and the target's tokenizer: one and the same where it is shared."""
        shared = self.path / "tokenizer.model"
        separate = (self.path / "source_tokenizer.model", self.path / "target_tokenizer.model")
        return separate if separate[0].exists() else (shared, shared)

    def write_tokenizers(self, models: tuple[bytes, ...]) -> None:
        """Writes one shared tokenizer or a pair.

        Args:
            models: serialised SentencePiece models, `(shared,)` or `(source, target)`.
        """
        for name in ("tokenizer.model", "source_tokenizer.model", "target_tokenizer.model"):
            (self.path / name).unlink(missing_ok=True)
        names = ("tokenizer.model",) if len(models) == 1 else ("source_tokenizer.model", "target_tokenizer.model")
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
            version = record["format"]
        except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError) as error:
            raise ModelDirectoryError(f"Unreadable {self.config_file}: {error}") from error
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
            overwrite: delete what another run has left.

        Raises:
            ModelDirectoryError: if a finished model or another configuration's run lies there, or
                files that are no run's, and `overwrite` is false.
        """
        if not self.path.exists() or not any(self.path.iterdir()):
            return False
        if not self.config_file.exists():
            raise ModelDirectoryError(f"{self.path} is not empty and is no model directory")
        found = self.record()
        differing = _differences(record, {k: v for k, v in found.items() if k not in ("format", "finished")})
        if found["finished"] and not overwrite:
            raise ModelDirectoryError(f"{self.path} holds a finished model; overwrite=true replaces it")
        if differing and not overwrite:
            raise ModelDirectoryError(
                f"{self.path} holds an unfinished run of another configuration, differing in: {'; '.join(differing)}"
            )
        return not found["finished"] and not differing

    def clear(self) -> None:
        """Deletes what a run writes; other files stay."""
        for folder in (self.checkpoints, self.logs, self.export):
            shutil.rmtree(folder, ignore_errors=True)
        for name in ("model.keras", "tokenizer.model", "source_tokenizer.model", "target_tokenizer.model"):
            (self.path / name).unlink(missing_ok=True)
        self.config_file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory, made if need be, against other writers; a killed process holds nothing.

        A directory that is empty in the end is removed.

        Raises:
            ModelDirectoryError: if another process holds it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        # On the directory itself, so that no lock file is left behind.
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ModelDirectoryError(f"{self.path} is in use by another process") from error
        try:
            yield
        finally:
            os.close(descriptor)
            if not any(self.path.iterdir()):
                self.path.rmdir()


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    Args:
        path: a file or a folder that exists or not; its parent is made.

    Yields:
        The path to write to, with the same suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".tmp-", dir=path.parent))
    temporary = folder / path.name
    try:
        yield temporary
        if path.is_dir():
            path.rename(folder / "replaced")
        temporary.rename(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
