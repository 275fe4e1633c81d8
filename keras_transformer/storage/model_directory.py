"""The model directory: names of its files, its record and its state. No other module knows them.

`config.yaml` marks a folder as a model directory. It is written before any other file, and files are deleted or
replaced only in a folder that contains it.
"""

import contextlib
import dataclasses
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_transformer.checks import require
from keras_transformer.storage.atomic_files import atomic_write, delete_matching
from keras_transformer.storage.recorded_folder import ModelDirectoryError, parsing, read_json
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.storage.tokenizers import TOKENIZERS, TokenizerFolder, tokenizer_problems
from keras_transformer.text.tokenization import Tokenizer

#: Since format 2, some options have other names. Since format 3, a model may have several languages.
FORMAT_VERSION = 3

#: File in the folder of an export that identifies the model it was made from.
ORIGIN = "origin.json"
_SHORTLIST = "shortlist.npz"
#: Files of a finished model, except its exports.
_MODEL = ("model.keras", _SHORTLIST, *TOKENIZERS)
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
#: Old name -> new name of the options that format 2 renamed. Nested names are joined with a dot.
_RENAMED_IN_2 = {"tokens": "prepared", "recipe.keep": "recipe.keep_checkpoints", "model_as_built": "model_config"}


class ModelDirectory(TokenizerFolder):
    """File names, record, state and lock of a model directory.

    Args:
        path: the directory, which need not exist.
    """

    record_name = "config.yaml"
    format_version = FORMAT_VERSION
    kind, foreign = "model directory", "is not a model directory"
    subfolders = ("checkpoints", "tokens", "export")

    def __init__(self, path: str | Path):
        super().__init__(path)
        self.model_file = self.path / "model.keras"
        self.checkpoints = self.path / "checkpoints"
        self.tokens = self.path / "tokens"
        self.logs = self.path / "logs"
        self.shortlist_file = self.path / _SHORTLIST
        self.curve_file = self.logs / "training_curve.png"
        self.export = self.path / "export"
        self.verification_file = self.export / "verification.json"

    @classmethod
    def create(
        cls,
        path: str | Path,
        model,
        tokenizers: Sequence[Tokenizer],
        languages: Sequence[str | None] = (None, None),
        overwrite: bool = False,
        **entries,
    ) -> "ModelDirectory":
        """Makes the directory of a model that is in memory: it can be translated with, exported, served and fine-tuned.

        Args:
            path: the directory.
            model: a `Transformer` whose source is token ids.
            tokenizers: `(shared,)` or `(source, target)`, with the vocabularies of the model.
            languages: codes of the source language and the target language, such as `("en", "de")`.
            overwrite: whether to replace an existing model or run.
            **entries: further entries of the record, `config.yaml`.

        Returns:
            The directory.

        Raises:
            ValueError: if the directory contains a model, a run or other files, or the model and the tokenizers do not
                belong together. Nothing is written then.

        Example:

            ModelDirectory.create("runs/mine", model, [Tokenizer("tokenizer.model")], ("en", "de"))
        """
        directory = cls(path)
        require(tokenizer_problems(model, [tokenizer.vocab_size for tokenizer in tokenizers]))
        directory.require_free(overwrite)
        with directory.locked():
            directory.require_free(overwrite)
            with directory.claimed():
                directory.clear()
                TokenDirectory(directory.tokens).delete()
                with directory.replacing_model(tuple(tokenizer.model for tokenizer in tokenizers)) as temporary:
                    model.save(temporary)
            record = {
                **entries,
                "languages": [*languages],
                "model_config": dataclasses.asdict(model.config),
                "tokenizers_sha256": [tokenizers[0].sha256, tokenizers[-1].sha256],
            }
            directory.write_record(record, finished=True)
        return directory

    def exported(self, name: str) -> Path:
        """The folder of an export, which need not exist, by the name that `export_name` returns."""
        return self.export / name

    def record(self) -> dict[str, Any]:
        """Reads `config.yaml`, migrated to the current names."""
        record = super().record()
        return _renamed(record, _RENAMED_IN_2) if record["format"] < 2 else record

    def _load(self):
        import yaml  # Imported here, because clients that only translate do not need it.

        with parsing(self.record_file):
            record = yaml.safe_load(self.record_file.read_text(encoding="utf-8"))
            return {**record, "finished": bool(record["finished"])}

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes of the source language and of the target language of the model; `None` if unknown."""
        source, target = self.model_record().get("languages") or (None, None)
        return source, target

    def model_record(self) -> dict[str, Any]:
        """The record of the model in the directory, which an unfinished run may be about to replace."""
        return _of_model(self.record())

    def write_record(self, record: dict[str, Any], finished: bool) -> None:
        """Writes `config.yaml`. The `format` and `finished` of `record` are replaced."""
        import yaml

        with atomic_write(self.record_file) as temporary:
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

    def is_started(self) -> bool:
        """Whether the directory contains a model, or a run that has started.

        Raises:
            ModelDirectoryError: if the directory is neither empty nor a model directory.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ModelDirectoryError(f"{self.path} is a file, not a directory")
        return not self.is_free() and not _is_mark(self.record())

    def require_free(self, overwrite: bool) -> None:
        """Checks that a model may be written here.

        Args:
            overwrite: whether an existing model or run may be replaced.

        Raises:
            ModelDirectoryError: if the directory contains a model, a run, or other files.
        """
        if self.is_started() and not overwrite:
            what = "a finished model" if self.record()["finished"] else "an unfinished run"
            raise ModelDirectoryError(f"{self.path} contains {what}. To replace it, use --overwrite")

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Writes the mark of a new directory before the block. Removes it if the block fails without writing files."""
        is_new = not self.record_file.exists() or _is_mark(self.record())
        if not self.record_file.exists():
            self.write_record({}, finished=False)
        try:
            yield
        except BaseException:
            if is_new and [*self.path.iterdir()] == [self.record_file]:
                self.record_file.unlink()
            raise

    def clear(self) -> None:
        """Deletes the files of a run. Its tokens, the mark and files of other programs are kept.

        A finished model stays valid, with its tokenizers, shortlist and exports, until `replacing_model` replaces it.
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
        """Context manager that writes the model, to the path that it yields, and its tokenizers.

        A finished model that `clear` has kept is deleted with its exports when the new one is complete.
        """
        with atomic_write(self.model_file) as temporary:
            yield temporary
            record, exports = self.record(), self.recorded_exports()
            if record.pop(_REPLACES, None):
                self.write_record(record, finished=False)  # From here on, the old model is not used.
                self._delete_model(exports)
            self.write_tokenizers(tokenizers)

    def recorded_exports(self) -> set[str]:
        """The names of the exports that `verification.json` records."""
        if not self.verification_file.exists():
            return set()
        return {program.partition(" ")[0] for program in read_json(self.verification_file)}

    def require_replaceable(self, name: str) -> None:
        """Checks that the folder of an export does not exist or contains an earlier export.

        An export is recorded in `verification.json`, or its folder contains `origin.json`.
        """
        place = self.exported(name)
        is_export = name in self.recorded_exports() or (place / ORIGIN).is_file()
        if os.path.lexists(place) and not is_export:
            raise ModelDirectoryError(
                f"{place} exists, but {self.verification_file} does not record it as an export. Move or delete it"
            )

    def require_shortlist(self) -> Path:
        """Returns the file of the shortlist, which must exist."""
        if not self.shortlist_file.is_file():
            raise ModelDirectoryError(
                f"No shortlist in {self.path}. Make one: keras-transformer shortlist {self.path} --source … --target …"
            )
        return self.shortlist_file


def export_name(format: str, quantize: str | None = None) -> str:
    """The name of an export, which is also the name of its folder and of its runtime.

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


def _renamed(record, names, prefix=""):
    """Renames options in a record and in its nested records."""
    result = {}
    for name, value in record.items():
        if isinstance(value, dict):
            value = _renamed(value, names, f"{prefix}{name}.")
        result[names.get(f"{prefix}{name}", f"{prefix}{name}").removeprefix(prefix)] = value
    return result
