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
import glob
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.counting import counted
from keras_transformer.storage.atomic_files import TEMPORARY, delete, delete_matching, naming
from keras_transformer.storage.recorded_folder import ModelDirectoryError, hash_of_files, write_json
from keras_transformer.storage.rows import TokenSide
from keras_transformer.storage.tokenizers import TOKENIZERS, TokenizerFolder
from keras_transformer.text.files import one_line, readable, split_lines

#: Since format 2, the statistics call pairs with equal sides `identical`. Since format 3, there may be several corpora.
FORMAT_VERSION = 3
SIDES = ("source", "target")
#: The ids that start every source and every target of a corpus: tags and tokens of languages.
Prefixes = tuple[tuple[int, ...], tuple[int, ...]]
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


class TokenDirectory(TokenizerFolder):
    """File names, record and contents of a tokenized corpus.

    Args:
        path: the folder. It need not exist.
    """

    record_name = "tokens.json"
    format_version = FORMAT_VERSION
    kind, foreign = "folder of prepared tokens", "contains no tokens"

    def __init__(self, path: str | Path):
        super().__init__(path)
        self._record: dict[str, Any] | None = None

    def ids_file(self, split: str, side: str) -> Path:
        """The token ids of a side of a split."""
        return self.path / f"{split}.{side}.npy"

    def lengths_file(self, split: str, side: str) -> Path:
        """The sentence lengths of a side of a split."""
        return self.path / f"{split}.{side}.lengths.npy"

    def text_file(self, side: str) -> Path:
        """The validation text of a side."""
        return self.path / f"validation.{side}.txt"

    def record(self) -> dict[str, Any]:
        """The record, which is read once.

        Returns:
            `data` (the options), `languages`, `vocab_sizes`, `tokenizers_sha256`, `statistics` of each
            split, `prefixes` (see the property), `source_text` (see `SourceText`) and `sha256`.

        Raises:
            ValueError: if the record is missing or unreadable, or has a newer format.
        """
        if self._record is None:
            record = self._read()
            if _is_incomplete(record):
                raise ValueError(f"Incomplete tokens: {self.path} (the command that wrote it was interrupted)")
            if "statistics" not in record:
                raise ValueError(f"Unreadable {self.record_file}: it has no statistics")
            self._record = record
        return self._record

    def _read(self):
        """The contents of the record file, which may be incomplete, under the names of the current format."""
        record = super().record()
        for counts in record.get("statistics", {}).values():
            if "alike" in counts:  # Format 1.
                counts["identical"] = counts.pop("alike")
        return record

    def write_record(self, record: dict[str, Any]) -> None:
        """Writes the record, with the format and a hash of the token files, which must be complete."""
        files = itertools.chain(*(self._arrays(split) for split in record["statistics"]))
        write_json(self.record_file, {"format": FORMAT_VERSION, **record, "sha256": hash_of_files(files)})
        self._record = None

    def _arrays(self, split) -> list[Path]:
        return [file(split, side) for side in SIDES for file in (self.ids_file, self.lengths_file)]

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
    def prefixes(self) -> dict[str, Prefixes]:
        """The ids that start every source and every target of a split to train on, for those that have some."""
        of_tags = {split: ([tag], []) for split, tag in self.record().get("tags", {}).items()}  # Of older versions.
        found = self.record().get("prefixes") or of_tags
        return {split: (tuple(source), tuple(target)) for split, (source, target) in found.items()}

    def statistics(self, split: str) -> Statistics:
        """The statistics of a split."""
        return Statistics(**self.record()["statistics"][split])

    def sides(self, split: str) -> tuple[TokenSide, TokenSide]:
        """Source and target of a split, memory-mapped."""
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
        """Checks that tokens may be written here: the folder is empty, or it has tokens and `overwrite` is true.

        Files of an interrupted command do not count.
        """
        if not self.is_free() and not _is_incomplete(self._read()) and not overwrite:
            raise ModelDirectoryError(f"{self.path} contains tokens; use --overwrite to replace them")

    def delete(self) -> None:
        """Deletes the tokens, and the folder if it is then empty. Files of other programs are kept."""
        splits = ["train", "validation"]
        with contextlib.suppress(OSError, ValueError, AttributeError):  # A damaged record.
            splits += self._known_splits()
        for file in (*self._data(splits), self.record_file):
            delete_matching(self.path.parent, glob.escape(self.path.name), glob.escape(file.name))

    def _data(self, splits) -> list[Path]:
        """All files except the record."""
        arrays = itertools.chain(*map(self._arrays, dict.fromkeys(splits)))
        return [*arrays, *map(self.text_file, SIDES), *(self.path / name for name in TOKENIZERS)]

    def _known_splits(self) -> list[str]:
        """The splits in the record, which may be incomplete. Older versions had two."""
        record = self._read() if self.record_file.exists() else {}
        return record.get("splits") or list(record.get("statistics", ("train", "validation")))

    @contextlib.contextmanager
    def atomic_write(self) -> Iterator["TokenDirectory"]:
        """Locks the folder, and yields a temporary one. If the block succeeds, its files replace the existing tokens.

        Arrays that were memory-mapped in the block stay valid.
        """
        with (
            self.locked(),
            tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=self.path, ignore_cleanup_errors=True) as folder,
        ):
            new = TokenDirectory(folder)
            with naming(self.path):
                yield new
            self._replace_with(new)

    def _replace_with(self, new):
        """Moves the files of another folder here. Until the record is complete, it lists all splits of both."""
        splits = [*self._known_splits(), *new.splits]
        write_json(self.record_file, {**_INCOMPLETE, "splits": list(dict.fromkeys(splits))})
        self._record = None
        for file in self._data(splits):
            delete(file)
        for file in sorted(new.path.iterdir(), key=lambda file: file.name == self.record_name):
            file.rename(self.path / file.name)


def _is_incomplete(record) -> bool:
    return record.get("complete") is False


class ArrayFile:
    """A new one-dimensional `.npy` file that can be appended to; a context manager."""

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
    """Writes lines of text to a binary file. Line breaks within a line become spaces."""
    file.writelines(one_line(line).encode() + b"\n" for line in lines)


def _mapped(path):
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"Invalid token file: {path} ({error})") from error
