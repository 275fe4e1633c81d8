"""A corpus as ids in files: the only place that knows their names, and how they are written.

train.source.npy, train.target.npy            ids, one sentence after another, each with its end
train.source.lengths.npy, …                   how many of them are each sentence's
validation.…                                  the same
validation.source.txt, validation.target.txt  the text, for BLEU
tokenizer.model                               or source_tokenizer.model and target_tokenizer.model
tokens.json                                   the record; while the files are replaced, a mark in its place
"""

import contextlib
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.atomic_files import TEMPORARY, atomic_write, delete, naming
from keras_transformer.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.text.files import readable, split_lines
from keras_transformer.training.data.filtering import Statistics
from keras_transformer.training.data.rows import TokenSide

FORMAT_VERSION = 1
SPLITS = ("train", "validation")
SIDES = ("source", "target")
#: In the record's place: the files beside it are this package's, and not complete.
_MARK = {"format": FORMAT_VERSION, "complete": False}


class TokenDirectory:
    """Names, record and contents of one such folder.

    Args:
        path: the folder; it need not exist.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.record_file = self.path / "tokens.json"

    def ids_file(self, split: str, side: str) -> Path:
        """The ids of a side of a split."""
        return self.path / f"{split}.{side}.npy"

    def lengths_file(self, split: str, side: str) -> Path:
        """The lengths of its sentences."""
        return self.path / f"{split}.{side}.lengths.npy"

    def text_file(self, side: str) -> Path:
        """The validation text of a side."""
        return self.path / f"validation.{side}.txt"

    def tokenizer_models(self) -> tuple[bytes, ...]:
        """The serialised SentencePiece models, `(shared,)` or `(source, target)`."""
        return ModelDirectory(self.path).tokenizer_models()

    def write_tokenizers(self, models: tuple[bytes, ...]) -> None:
        """Writes them; see `ModelDirectory.write_tokenizers`."""
        ModelDirectory(self.path).write_tokenizers(models)

    def record(self) -> dict[str, Any]:
        """What was recorded.

        Returns:
            `data`, the options; `vocab_sizes` and `tokenizers_sha256`; `statistics` of each split; `sha256`.

        Raises:
            ValueError: if there is no record, it cannot be read, or its format is a newer one.
        """
        if not self.record_file.is_file():
            raise ValueError(f"Not a whole folder of tokens: {self.path} (no {self.record_file.name})")
        record = self._read()
        if record == _MARK:
            raise ValueError(f"Not a whole folder of tokens: {self.path} (the command that wrote it was interrupted)")
        return record

    def _read(self):
        """The contents of the record's file, which may be the mark."""
        try:
            record = json.loads(self.record_file.read_text(encoding="utf-8"))
            version = int(record["format"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"Unreadable {self.record_file}: {error!r}") from error
        if version > FORMAT_VERSION:
            raise ValueError(f"{self.path} has format {version}; this version reads formats up to {FORMAT_VERSION}")
        return record

    def write_record(self, record: dict[str, Any]) -> None:
        """Writes the record, with a hash of the ids: the files must be whole.

        Args:
            record: what is recorded besides.
        """
        digest = hashlib.sha256()
        for split, side in itertools.product(SPLITS, SIDES):
            for path in (self.ids_file(split, side), self.lengths_file(split, side)):
                with open(path, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        record = {"format": FORMAT_VERSION, **record, "sha256": digest.hexdigest()}
        self.record_file.write_text(json.dumps(record, indent=1), encoding="utf-8")

    def statistics(self, split: str) -> Statistics:
        """What was found when a split was written."""
        return Statistics(**self.record()["statistics"][split])

    def sides(self, split: str) -> tuple[TokenSide, TokenSide]:
        """Source and target of a split, mapped into memory.

        Raises:
            ValueError: if a file is missing or not whole.
        """
        return tuple(
            TokenSide(_mapped(self.ids_file(split, side)), _mapped(self.lengths_file(split, side))) for side in SIDES
        )

    def validation_lines(self, count: int) -> tuple[list[str], list[str]]:
        """The first so many pairs of the validation text."""
        sides = []
        for side in SIDES:
            with readable(self.text_file(side)) as file:
                sides.append(list(itertools.islice(split_lines(file), count)))
        return tuple(sides)

    def require_free(self, overwrite: bool) -> None:
        """Checks that tokens may be written there; what a killed process has left is no hindrance.

        Args:
            overwrite: whether they may replace others.

        Raises:
            ValueError: if it holds tokens, or files without the record or the mark of tokens.
        """
        if self.record_file.exists():
            if self._read() != _MARK and not overwrite:
                raise ModelDirectoryError(f"{self.path} holds tokens; --overwrite replaces them")
        elif self.path.exists():
            if not self.path.is_dir() or any(not path.name.startswith(TEMPORARY) for path in self.path.iterdir()):
                raise ModelDirectoryError(
                    f"{self.path} is not empty and is no folder of tokens (no {self.record_file.name})"
                )

    def _delete_data(self):
        """Deletes all files that belong to it but the record."""
        for split, side in itertools.product(SPLITS, SIDES):
            delete(self.ids_file(split, side))
            delete(self.lengths_file(split, side))
        for file in (*map(self.text_file, SIDES), *ModelDirectory(self.path).possible_tokenizer_files):
            delete(file)

    @contextlib.contextmanager
    def atomic_write(self) -> Iterator["TokenDirectory"]:
        """A temporary folder within; its files replace the tokens that lay here when the block ends well.

        Arrays that are mapped in the block stay what they are.

        Yields:
            The temporary `TokenDirectory`.
        """
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = TokenDirectory(tempfile.mkdtemp(prefix=TEMPORARY, dir=self.path))
        try:
            with naming(self.path):
                yield temporary
            with atomic_write(self.record_file) as mark:
                mark.write_text(json.dumps(_MARK), encoding="utf-8")
            self._delete_data()
            for file in sorted(temporary.path.iterdir(), key=lambda file: file.name == self.record_file.name):
                file.rename(self.path / file.name)
        finally:
            shutil.rmtree(temporary.path, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # With files in it, it stays.
                    self.path.rmdir()


class ArrayFile:
    """A `.npy` file of one dimension that grows; a context manager.

    Args:
        path: the file, made anew.
        dtype: of the array.
    """

    def __init__(self, path: Path, dtype: Any):
        self.dtype = np.dtype(dtype)
        self.size = 0
        self._file = open(path, "wb")
        self._write_header()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def append(self, values: np.ndarray) -> None:
        """Writes values, one dimension of them, behind those before."""
        self._file.write(values.astype(self.dtype, copy=False).tobytes())
        self.size += len(values)

    def _write_header(self):
        """Its length does not depend on the array's: NumPy leaves room in it to grow."""
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def write_lines(file, lines: Sequence[str]) -> None:
    """Lines of text, each as one line whatever it holds.

    Args:
        file: binary.
        lines: the text.
    """
    file.writelines(line.replace("\n", " ").encode() + b"\n" for line in lines)


def _mapped(path):
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"Not a whole file of tokens: {path} ({error})") from error
