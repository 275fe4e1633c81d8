"""The model directory: the only place that knows its file names and its format.

`config.yaml` is also the mark of a model directory: it is written before anything else, and only in a directory with
this mark is a file ever deleted or replaced.
"""

import contextlib
import fcntl
import glob
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from keras_transformer.atomic_files import TEMPORARY, atomic_write, delete_matching
from keras_transformer.run_records import differences, migrate, refusal, with_defaults

FORMAT_VERSION = 2

#: In an export's folder: which model it was made from.
ORIGIN = "origin.json"
#: The shared tokenizer, or the source's and the target's.
_TOKENIZERS = ("tokenizer.model", "source_tokenizer.model", "target_tokenizer.model")
#: What a run writes besides `config.yaml` and its exports; names by level.
_WRITTEN = (
    f"checkpoints/step-{'[0-9]' * 8}.keras",
    "checkpoints/validations.json",
    "logs/train/events.out.tfevents.*",
    "logs/validation/events.out.tfevents.*",
    "logs/training_curve.png",
    "model.keras",
    *_TOKENIZERS,
)
_TOKENS = (
    *(
        f"{split}.{side}{kind}.npy"
        for split in ("train", "validation")
        for side in ("source", "target")
        for kind in ("", ".lengths")
    ),
    "validation.source.txt",
    "validation.target.txt",
    *_TOKENIZERS,
    "tokens.json",
)


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
            with atomic_write(self.path / name) as temporary:
                temporary.write_bytes(model)

    def record(self) -> dict[str, Any]:
        """The contents of `config.yaml`.

        Raises:
            ModelDirectoryError: if there is none, it cannot be read, or its format is a newer one.
        """
        import yaml  # Here, since clients that only translate do without.

        if not self.config_file.is_file():
            if self.path.is_dir():
                raise ModelDirectoryError(f"Not a model directory: {self.path} (no config.yaml)")
            reason = "it is a file" if self.path.exists() else "there is no such directory"
            raise ModelDirectoryError(f"Not a model directory: {self.path} ({reason})")
        try:
            record = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
            version, _ = int(record["format"]), record["finished"]
        except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, ValueError) as error:
            raise ModelDirectoryError(f"Unreadable {self.config_file}: {error!r}") from error
        if version > FORMAT_VERSION:
            raise ModelDirectoryError(
                f"{self.path} has format {version}; this version reads formats up to {FORMAT_VERSION}"
            )
        return migrate(record)

    def write_record(self, record: dict[str, Any], finished: bool) -> None:
        """Writes `config.yaml`.

        Args:
            record: what is recorded besides format and state, which it may hold of an earlier record.
            finished: whether the model is trained.
        """
        import yaml

        with atomic_write(self.config_file) as temporary:
            state = {"format": FORMAT_VERSION, "finished": finished}
            temporary.write_text(yaml.safe_dump({**state, **record, **state}, sort_keys=False), encoding="utf-8")

    def require_finished(self) -> dict[str, Any]:
        """The record of a directory that holds a trained model.

        While a finished run is trained for longer, its model stays until the new one takes its place.

        Raises:
            ModelDirectoryError: if it does not.
        """
        record = self.record()
        missing = [str(f) for f in dict.fromkeys([self.model_file, *self.tokenizer_files]) if not f.is_file()]
        has_model = record["finished"] or "weights_of_steps" in record
        if not has_model or missing:
            detail = f"missing: {', '.join(missing)}" if missing else "its training has not finished"
            raise ModelDirectoryError(f"{self.path} holds no finished model ({detail})")
        return record

    def check_resumable(
        self,
        record: dict[str, Any],
        overwrite: bool = False,
        defaults: dict[str, Any] | None = None,
        changeable: Collection[str] = (),
    ) -> bool:
        """Whether a run with this configuration was begun there, to be resumed.

        Args:
            record: the configuration about to run.
            overwrite: start over, whatever another run has left.
            defaults: of the options in `record`, for records that were written before an option existed.
            changeable: dotted names of the options that a resumed run may change. A finished run is resumed if
                one of them, and nothing else, differs.

        Raises:
            ModelDirectoryError: if a finished model or another configuration's run lies there and `overwrite` is
                false, or the directory is not empty and not marked as a model directory.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ModelDirectoryError(f"{self.path} is a file, not a directory")
        if not self.config_file.exists():
            self._require_empty()
            return False
        found = self.record()
        if overwrite or _is_mark(found):
            return False
        found_options = with_defaults({name: found[name] for name in record if name in found}, defaults or {})
        changes = differences(record, found_options)
        if message := refusal(self.path, found["finished"], changes, changeable):
            raise ModelDirectoryError(message)
        return True

    def _require_empty(self):
        """Refuses a folder of somebody else's files; temporary files of a killed process are no hindrance."""
        if self.path.exists() and any(not path.name.startswith(TEMPORARY) for path in self.path.iterdir()):
            raise ModelDirectoryError(f"{self.path} is not empty and is no model directory (no config.yaml)")

    @contextlib.contextmanager
    def marked(self) -> Iterator[None]:
        """Marks a new directory before the block writes anything; if that fails and leaves nothing, the mark goes."""
        is_new = not self.config_file.exists() or _is_mark(self.record())
        if is_new:
            self._mark()
        try:
            yield
        except BaseException:
            if is_new and [*self.path.iterdir()] == [self.config_file]:
                self.config_file.unlink()
            raise

    def _mark(self):
        self.write_record({}, finished=False)

    def clear(self) -> None:
        """Deletes what a run writes, but for the tokens that it begins with; other files and the mark stay.

        Raises:
            OSError: naming what cannot be deleted.
        """
        exports = self.recorded_exports()
        self._mark()
        for pattern in _WRITTEN:
            delete_matching(self.path, *pattern.split("/"))
        for name in (*exports, self.verification_file.name):
            delete_matching(self.path, self.export.name, glob.escape(name))

    def delete_tokens(self) -> None:
        """Deletes the tokens that a run has made for itself; other files stay.

        Raises:
            OSError: naming what cannot be deleted.
        """
        for pattern in _TOKENS:
            delete_matching(self.path, self.tokens.name, pattern)

    def recorded_exports(self) -> set[str]:
        """Names of the exports in `verification.json`, which marks their folders as exports.

        Raises:
            ModelDirectoryError: if the file cannot be read.
        """
        if not self.verification_file.exists():
            return set()
        try:
            return {program.split()[0] for program in json.loads(self.verification_file.read_text(encoding="utf-8"))}
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise ModelDirectoryError(f"Unreadable {self.verification_file}: {error!r}") from error

    def require_replaceable(self, name: str) -> None:
        """Checks that an export may be written: its folder is new, or an export, as a record of it or in it says.

        Args:
            name: of the export.

        Raises:
            ModelDirectoryError: if somebody else's files lie there.
        """
        place = self.exported(name)
        is_export = name in self.recorded_exports() or (place / ORIGIN).is_file()
        if os.path.lexists(place) and not is_export:
            raise ModelDirectoryError(
                f"{place} is not an export that {self.verification_file} records; move it away, or delete it"
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory, made if need be, against other writers; a killed process holds nothing.

        Folders that were made and are empty in the end are removed.

        Raises:
            ModelDirectoryError: if another process holds it.
            OSError: if the files of a killed process cannot be deleted.
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
                delete_matching(folder, f"{TEMPORARY}*")  # Of processes that were killed.
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


def _is_mark(record):
    """Whether it is that of a directory in which no run has begun yet."""
    return record.keys() == {"format", "finished"}
