"""A tokenized corpus on disk. Only this module knows the names of the files.

train.source.npy, train.target.npy            token ids, concatenated; each sentence has its end id
train.NAME.source.npy, …                      the same for each of several corpora, instead of `train`
train.source.lengths.npy, …                   number of tokens of each sentence
validation.…                                  the same
validation.source.txt, validation.target.txt  the text, for BLEU
tokenizer.model                               or source_tokenizer.model and target_tokenizer.model
tokens.json                                   the record; a marker while the files are replaced
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.counting import counted
from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write, delete, naming
from keras_transformer.storage.json_files import read_json
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.rows import TokenSide
from keras_transformer.text.files import readable, split_lines
from keras_transformer.text.line_breaks import one_line

#: Since format 2, the statistics call pairs with equal sides `identical`. Since format 3, there may be several corpora.
FORMAT_VERSION = 3
SIDES = ("source", "target")
#: Content of the record file while the files are incomplete. It marks them as files of this package.
_INCOMPLETE = {"format": FORMAT_VERSION, "complete": False}


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Counts of pairs, by the result of the filter. The counts of several chunks can be added."""

    pairs: int = 0
    empty: int = 0
    too_long: int = 0
    ratio: int = 0
    identical: int = 0  # used pairs with equal sides: untranslated lines, or the same file given twice

    @property
    def kept(self) -> int:
        """Pairs that are used."""
        return self.pairs - self.empty - self.too_long - self.ratio

    def __add__(self, other):
        sums = map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        return Statistics(*sums)

    def __str__(self):
        return (
            f"{self.kept:,} of {counted(self.pairs, 'pair')} used; removed: {self.empty:,} with an empty side, "
            f"{self.too_long:,} too long, {self.ratio:,} by length ratio"
            + (f"; {counted(self.identical, 'used pair')} with identical sides" if self.identical else "")
        )


class TokenDirectory:
    """File names, record and contents of a tokenized corpus.

    Args:
        path: the folder. It need not exist.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.record_file = self.path / "tokens.json"

    def ids_file(self, split: str, side: str) -> Path:
        """The token ids of a side of a split."""
        return self.path / f"{split}.{side}.npy"

    def lengths_file(self, split: str, side: str) -> Path:
        """The sentence lengths of a side of a split."""
        return self.path / f"{split}.{side}.lengths.npy"

    def text_file(self, side: str) -> Path:
        """The validation text of a side."""
        return self.path / f"validation.{side}.txt"

    def tokenizer_models(self) -> tuple[bytes, ...]:
        """The serialized SentencePiece models, `(shared,)` or `(source, target)`."""
        return ModelDirectory(self.path).tokenizer_models()

    def write_tokenizers(self, models: tuple[bytes, ...]) -> None:
        """Writes the SentencePiece models; see `ModelDirectory.write_tokenizers`."""
        ModelDirectory(self.path).write_tokenizers(models)

    def record(self) -> dict[str, Any]:
        """Reads the record.

        Returns:
            `data` (the options), `languages`, `vocab_sizes`, `tokenizers_sha256`, `statistics` of each
            split, `tags` (split -> id, for tagged corpora), `source_text` (see `SourceText`) and `sha256`.

        Raises:
            ValueError: if the record is missing or unreadable, or has a newer format.
        """
        if not self.record_file.is_file():
            raise ValueError(f"Not a folder of prepared tokens: {self.path} (no {self.record_file.name})")
        record = self._read()
        if _is_incomplete(record):
            raise ValueError(f"Incomplete tokens: {self.path} (the command that wrote it was interrupted)")
        if "statistics" not in record:
            raise ValueError(f"Unreadable {self.record_file}: it has no statistics")
        return record

    def _read(self):
        """The contents of the record file, which may be incomplete, under the names of the current format."""
        record = read_json(self.record_file)
        try:
            version = int(record["format"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"Unreadable {self.record_file}: {error!r}") from error
        if version > FORMAT_VERSION:
            raise ValueError(f"{self.path} has format {version}; this version reads formats up to {FORMAT_VERSION}")
        for counts in record.get("statistics", {}).values():
            if version < 2 and "alike" in counts:
                counts["identical"] = counts.pop("alike")
        return record

    def write_record(self, record: dict[str, Any]) -> None:
        """Writes the record, and adds a hash of the token files, which must be complete.

        Args:
            record: contents of the record, without format and hash.
        """
        digest = hashlib.sha256()
        for split, side in itertools.product(record["statistics"], SIDES):
            for path in (self.ids_file(split, side), self.lengths_file(split, side)):
                with open(path, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        record = {"format": FORMAT_VERSION, **record, "sha256": digest.hexdigest()}
        self.record_file.write_text(json.dumps(record, indent=1), encoding="utf-8")

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes of the source language and of the target language; `None` if unknown."""
        source, target = self.record().get("languages") or (None, None)
        return source, target

    @property
    def splits(self) -> list[str]:
        """The names of all splits: those to train on, then `validation`."""
        return list(self.record()["statistics"])

    @property
    def train_splits(self) -> list[str]:
        """The splits to train on: `train`, or `train.NAME` for each of several corpora."""
        return [split for split in self.splits if split != "validation"]

    @property
    def tags(self) -> dict[str, int]:
        """The id of the symbol that starts every source sentence, for the splits that have one."""
        return self.record().get("tags", {})

    def statistics(self, split: str) -> Statistics:
        """The statistics of a split."""
        return Statistics(**self.record()["statistics"][split])

    def sides(self, split: str) -> tuple[TokenSide, TokenSide]:
        """Source and target of a split, memory-mapped.

        Raises:
            ValueError: if a file is missing or damaged.
        """
        source, target = (
            TokenSide(_mapped(self.ids_file(split, side)), _mapped(self.lengths_file(split, side))) for side in SIDES
        )
        return source, target

    def validation_lines(self, count: int) -> tuple[list[str], list[str]]:
        """The first `count` pairs of the validation text."""
        sides = []
        for side in SIDES:
            with readable(self.text_file(side)) as file:
                sides.append(list(itertools.islice(split_lines(file), count)))
        return tuple(sides)

    def require_free(self, overwrite: bool) -> None:
        """Checks that tokens may be written here. Files of an interrupted command do not count.

        Args:
            overwrite: whether existing tokens may be replaced.

        Raises:
            ValueError: if the folder contains tokens, or other files.
        """
        if self.record_file.exists():
            if not _is_incomplete(self._read()) and not overwrite:
                raise ModelDirectoryError(f"{self.path} contains tokens; use --overwrite to replace them")
        elif self.path.exists():
            if not self.path.is_dir() or any(not path.name.startswith(TEMPORARY) for path in self.path.iterdir()):
                raise ModelDirectoryError(
                    f"{self.path} is not empty and contains no tokens (no {self.record_file.name})"
                )

    def _delete_data(self, splits):
        """Deletes all token files except the record."""
        for split, side in itertools.product(splits, SIDES):
            delete(self.ids_file(split, side))
            delete(self.lengths_file(split, side))
        for file in (*map(self.text_file, SIDES), *ModelDirectory(self.path).possible_tokenizer_files):
            delete(file)

    def _known_splits(self):
        """The splits in the record, which may be incomplete. Older versions had two."""
        record = self._read() if self.record_file.exists() else {}
        return record.get("splits") or list(record.get("statistics", ("train", "validation")))

    @contextlib.contextmanager
    def atomic_write(self) -> Iterator["TokenDirectory"]:
        """Yields a temporary folder. If the block succeeds, its files replace the existing tokens.

        Arrays that were memory-mapped in the block stay valid.

        Yields:
            The temporary `TokenDirectory`.
        """
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = TokenDirectory(tempfile.mkdtemp(prefix=TEMPORARY, dir=self.path))
        try:
            with naming(self.path):
                yield temporary
            # The names of all files of this package that may be here until the record is complete.
            splits = list(dict.fromkeys([*self._known_splits(), *temporary.splits]))
            with atomic_write(self.record_file) as record_file:
                record_file.write_text(json.dumps({**_INCOMPLETE, "splits": splits}), encoding="utf-8")
            self._delete_data(splits)
            for file in sorted(temporary.path.iterdir(), key=lambda file: file.name == self.record_file.name):
                file.rename(self.path / file.name)
        finally:
            shutil.rmtree(temporary.path, ignore_errors=True)
            if is_new:
                with contextlib.suppress(OSError):  # The folder is not empty.
                    self.path.rmdir()


def _is_incomplete(record) -> bool:
    return record.get("complete") is False


class ArrayFile:
    """A one-dimensional `.npy` file that can be appended to; a context manager.

    Args:
        path: the file. An existing file is replaced.
        dtype: dtype of the array.
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
        """Appends one-dimensional values."""
        self._file.write(values.astype(self.dtype, copy=False).tobytes())
        self.size += len(values)

    def _write_header(self):
        """Writes the header. Its length is fixed: NumPy reserves room for the final size."""
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.size,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def write_lines(file, lines: Sequence[str]) -> None:
    """Writes lines of text. Line breaks within a line become spaces.

    Args:
        file: a binary file.
        lines: the text.
    """
    file.writelines(one_line(line).encode() + b"\n" for line in lines)


def _mapped(path):
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"Invalid token file: {path} ({error})") from error
