"""The model directory: file names, format version and locks. No other module knows them.

`config.yaml` marks a folder as a model directory. It is written before any other file, and files are deleted or
replaced only in a folder that contains it.
"""

import contextlib
import fcntl
import glob
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write, clean_up, delete_matching
from keras_transformer.storage.run_records import migrate

FORMAT_VERSION = 2

#: File in the folder of an export that identifies the model it was made from.
ORIGIN = "origin.json"
#: Files of a shared tokenizer, a source tokenizer and a target tokenizer.
_TOKENIZERS = ("tokenizer.model", "source_tokenizer.model", "target_tokenizer.model")
_SHORTLIST = "shortlist.npz"
#: Files of a finished model, except its exports.
_MODEL = ("model.keras", _SHORTLIST, *_TOKENIZERS)
#: Patterns of the other files that a run writes, except `config.yaml` and tokens.
_WRITTEN = (
    f"checkpoints/step-{'[0-9]' * 8}.keras",
    "checkpoints/validations.json",
    "logs/train/events.out.tfevents.*",
    "logs/validation/events.out.tfevents.*",
    "logs/training_curve.png",
)
#: Entry of the record of an unfinished run: the record of the finished model that the run replaces at its end.
_REPLACES = "replaces"
_TOKENS_RECORD = "tokens.json"
#: Names of the files of tokens that do not depend on its splits.
_TOKENS = ("validation.source.txt", "validation.target.txt", *_TOKENIZERS, _TOKENS_RECORD)


class ModelDirectoryError(ValueError):
    """Raised if a directory cannot be used as requested. The message gives the reason."""


class ModelDirectory:
    """File names, record, state and lock of a model directory.

    Args:
        path: the directory, which need not exist.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.model_file = self.path / "model.keras"
        self.checkpoints = self.path / "checkpoints"
        self.tokens = self.path / "tokens"
        self.logs = self.path / "logs"
        self.shortlist_file = self.path / _SHORTLIST
        self.curve_file = self.logs / "training_curve.png"
        self.export = self.path / "export"
        self.verification_file = self.export / "verification.json"

    @property
    def tokenizer_files(self) -> tuple[Path, Path]:
        """Files of the source tokenizer and the target tokenizer. A shared tokenizer is returned twice."""
        shared, source, target = self.possible_tokenizer_files
        return (source, target) if source.exists() else (shared, shared)

    @property
    def possible_tokenizer_files(self) -> tuple[Path, ...]:
        """Files of a shared tokenizer, a source tokenizer and a target tokenizer, which need not exist."""
        return tuple(self.path / name for name in _TOKENIZERS)

    def exported(self, name: str) -> Path:
        """Returns the folder of an export, which need not exist.

        Args:
            name: name of the export; see `export_name`.
        """
        return self.export / name

    def tokenizer_models(self) -> tuple[bytes, ...]:
        """Reads the serialized SentencePiece models, `(shared,)` or `(source, target)`, for `write_tokenizers`."""
        return tuple(path.read_bytes() for path in dict.fromkeys(self.tokenizer_files))

    def write_tokenizers(self, models: tuple[bytes, ...]) -> None:
        """Writes a shared tokenizer, or a source and a target tokenizer.

        Args:
            models: serialized SentencePiece models, `(shared,)` or `(source, target)`.
        """
        names = _TOKENIZERS[:1] if len(models) == 1 else _TOKENIZERS[1:]
        for name, model in zip(names, models, strict=True):
            with atomic_write(self.path / name) as temporary:
                temporary.write_bytes(model)
        for name in set(_TOKENIZERS) - set(names):
            (self.path / name).unlink(missing_ok=True)

    def record(self) -> dict[str, Any]:
        """Reads `config.yaml`, migrated to the current names.

        Raises:
            ModelDirectoryError: if the file does not exist, cannot be read, or has a newer format.
        """
        import yaml  # Imported here, because clients that only translate do not need it.

        if not self.config_file.is_file():
            if self.path.is_dir():
                raise ModelDirectoryError(f"Not a model directory: {self.path} (no config.yaml)")
            reason = "it is a file" if self.path.exists() else "no such directory"
            raise ModelDirectoryError(f"Not a model directory: {self.path} ({reason})")
        try:
            record = yaml.safe_load(self.config_file.read_text(encoding="utf-8"))
            record = {**record, "format": int(record["format"]), "finished": bool(record["finished"])}
        except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, ValueError) as error:
            raise ModelDirectoryError(f"Unreadable {self.config_file}: {error!r}") from error
        if record["format"] > FORMAT_VERSION:
            raise ModelDirectoryError(
                f"{self.path} has format {record['format']}; this version reads formats up to {FORMAT_VERSION}"
            )
        return migrate(record)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes of the source language and of the target language of the model; `None` if unknown.

        Raises:
            ModelDirectoryError: see `record`.
        """
        source, target = _of_model(self.record()).get("languages") or (None, None)
        return source, target

    def write_record(self, record: dict[str, Any], finished: bool) -> None:
        """Writes `config.yaml`.

        Args:
            record: the options to record. Its `format` and `finished` are replaced.
            finished: whether training has finished.
        """
        import yaml

        with atomic_write(self.config_file) as temporary:
            state = {"format": FORMAT_VERSION, "finished": finished}
            temporary.write_text(yaml.safe_dump({**state, **record, **state}, sort_keys=False), encoding="utf-8")

    def require_finished(self) -> dict[str, Any]:
        """Returns the record of a directory that contains a trained model.

        If a finished run is trained further or overwritten, the old model stays valid until the new one replaces it.
        The record is then that of the old model, and its `finished` is false.

        Raises:
            ModelDirectoryError: if the directory contains no finished model.
        """
        found = self.record()
        record = _of_model(found)
        missing = [str(f) for f in dict.fromkeys([self.model_file, *self.tokenizer_files]) if not f.is_file()]
        has_model = found["finished"] or _REPLACES in found or "weights_of_steps" in found
        if not has_model or missing:
            detail = f"missing: {', '.join(missing)}" if missing else "training has not finished"
            raise ModelDirectoryError(f"{self.path} contains no finished model ({detail})")
        return record

    def is_started(self, overwrite: bool = False) -> bool:
        """Whether the directory contains a model, or a run that has started.

        Args:
            overwrite: ignore them, because they will be replaced.

        Raises:
            ModelDirectoryError: if the directory is neither empty nor a model directory.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ModelDirectoryError(f"{self.path} is a file, not a directory")
        if not self.config_file.exists():
            self._require_empty()
            return False
        return not (_is_mark(self.record()) or overwrite)

    def require_free(self, overwrite: bool) -> None:
        """Checks that a model may be written here.

        Args:
            overwrite: whether an existing model or run may be replaced.

        Raises:
            ModelDirectoryError: if the directory contains a model, a run, or other files.
        """
        if self.is_started(overwrite):
            what = "a finished model" if self.record()["finished"] else "an unfinished run"
            raise ModelDirectoryError(f"{self.path} contains {what}. To replace it, use --overwrite")

    def _require_empty(self):
        """Raises an error if the folder contains files, except temporary ones of a killed process."""
        if self.path.exists() and any(not path.name.startswith(TEMPORARY) for path in self.path.iterdir()):
            raise ModelDirectoryError(f"{self.path} is not empty and is not a model directory (no config.yaml)")

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Writes the mark of a new directory before the block. Removes it if the block fails without writing files."""
        is_new = not self.config_file.exists() or _is_mark(self.record())
        if not self.config_file.exists():
            self.write_record({}, finished=False)
        try:
            yield
        except BaseException:
            if is_new and [*self.path.iterdir()] == [self.config_file]:
                self.config_file.unlink()
            raise

    def clear(self) -> None:
        """Deletes the files of a run. Its tokens, the mark and files of other programs are kept.

        A finished model stays valid, with its tokenizers, shortlist and exports, until `replacing_model` replaces it.

        Raises:
            OSError: if a path cannot be deleted. The message contains the path.
        """
        exports = self.recorded_exports()
        replaced = self._finished_record()
        self.write_record({_REPLACES: replaced} if replaced else {}, finished=False)
        for pattern in _WRITTEN:
            delete_matching(self.path, *pattern.split("/"))
        if not replaced:
            self._delete_model(exports)

    def _finished_record(self):
        """The record of the finished model; `None` if there is none."""
        try:
            record = self.require_finished()
        except ModelDirectoryError:
            return None
        return {name: value for name, value in record.items() if name not in ("format", "finished")}

    def _delete_model(self, exports):
        for pattern in _MODEL:
            delete_matching(self.path, pattern)
        for name in (*exports, self.verification_file.name):
            delete_matching(self.path, self.export.name, glob.escape(name))

    @property
    def replaces_model(self) -> bool:
        """Whether an unfinished run will replace a finished model, whose tokenizers are in the directory until then."""
        return _REPLACES in self.record()

    @contextlib.contextmanager
    def replacing_model(self, tokenizers: tuple[bytes, ...]) -> Iterator[Path]:
        """Context manager that writes the model and its tokenizers.

        A finished model that `clear` has kept is deleted with its exports when the new one is complete.

        Args:
            tokenizers: see `write_tokenizers`.

        Yields:
            A temporary path for the model.
        """
        with atomic_write(self.model_file) as temporary:
            yield temporary
            record, exports = self.record(), self.recorded_exports()
            if record.pop(_REPLACES, None):
                self.write_record(record, finished=False)  # From here on, the old model is not used.
                self._delete_model(exports)
            self.write_tokenizers(tokenizers)

    def delete_tokens(self) -> None:
        """Deletes the tokenized corpus in the directory. Files of other programs are kept.

        Raises:
            OSError: if a path cannot be deleted. The message contains the path.
        """
        splits = dict.fromkeys(["train", "validation", *self._recorded_splits()])
        sides = itertools.product(splits, ("source", "target"), ("", ".lengths"))
        for name in (*(f"{split}.{side}{kind}.npy" for split, side, kind in sides), *_TOKENS):
            delete_matching(self.path, self.tokens.name, glob.escape(name))

    def _recorded_splits(self):
        """The splits of the tokens in the directory; none if their record is missing or damaged."""
        try:
            record = json.loads((self.tokens / _TOKENS_RECORD).read_text(encoding="utf-8"))
            return [*record.get("splits", ()), *record.get("statistics", ())]
        except (OSError, ValueError, AttributeError):
            return []

    def recorded_exports(self) -> set[str]:
        """Returns the names of the exports that `verification.json` records.

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
        """Checks that the folder of an export does not exist or contains an earlier export.

        An export is recorded in `verification.json`, or its folder contains `origin.json`.

        Args:
            name: name of the export.

        Raises:
            ModelDirectoryError: if the folder contains other files.
        """
        place = self.exported(name)
        is_export = name in self.recorded_exports() or (place / ORIGIN).is_file()
        if os.path.lexists(place) and not is_export:
            raise ModelDirectoryError(
                f"{place} exists, but {self.verification_file} does not record it as an export. Move or delete it"
            )

    def require_shortlist(self) -> Path:
        """Returns the file of the shortlist.

        Raises:
            ModelDirectoryError: if there is none.
        """
        if not self.shortlist_file.is_file():
            raise ModelDirectoryError(
                f"No shortlist in {self.path}. Make one: keras-transformer shortlist {self.path} --source … --target …"
            )
        return self.shortlist_file

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the directory against other writers. The system releases the lock of a killed process.

        The directory is created if it does not exist, and removed if it is empty at the end. Temporary files of killed
        processes are deleted.

        Raises:
            ModelDirectoryError: if another process holds the lock.
            OSError: if a temporary file cannot be deleted.
        """
        made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        # Locks the directory itself, so no lock file is left behind.
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ModelDirectoryError(f"{self.path} is in use by another process") from error
        try:
            for folder in (self.path, self.checkpoints, self.tokens, self.export):
                clean_up(folder)
            yield
        finally:
            os.close(descriptor)
            with contextlib.suppress(OSError):  # Folders that are not empty are kept.
                for folder in made:
                    folder.rmdir()


def export_name(format: str, quantize: str | None = None) -> str:
    """Returns the name of an export, which is also the name of its folder and of its runtime.

    Args:
        format: format of the export, such as `"onnx"`.
        quantize: type of quantized weights, such as `"int8"`. Default: float32 weights.

    Example:

    >>> export_name("onnx"), export_name("onnx", "int8")
    ('onnx', 'onnx_int8')
    """
    return f"{format}_{quantize}" if quantize else format


def _is_mark(record):
    """Whether a record contains only the mark, because no run has started in the directory."""
    return record.keys() - {_REPLACES} == {"format", "finished"}


def _of_model(record):
    """The record of the model in the directory, which an unfinished run may be about to replace."""
    return {**record[_REPLACES], "format": record["format"], "finished": False} if _REPLACES in record else record
