"""A text file that appears when it is complete. After an interruption, writing can be resumed."""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from keras_transformer.storage.atomic_files import clean_up
from keras_transformer.storage.recorded_folder import ModelDirectoryError, RecordedFolder, lock, write_json

#: Stands for a missing entry of a record, since `None` is a value.
_NONE = object()


class ResumableFile(RecordedFolder):
    """Writes a text file that can be resumed.

    Until the file is complete, its lines are in `NAME.partial/lines` and the record is in `NAME.partial/record.json`.

    Args:
        file: the file to write.
        record: JSON data that determine the content. Writing is resumed only with an equal record.
        item_of: called with a line, it returns the item of the line. The lines of an item follow one another. Default:
            each line is an item. On resumption an item that may be incomplete is removed: the last one, if an item may
            have several lines.
        how_to_resume: what the user does to resume, for messages.
    """

    record_name = "record.json"
    kind, foreign = "folder of an interrupted translation", "contains no interrupted translation; delete or move it"

    def __init__(
        self,
        file: Path,
        record: dict,
        item_of: Callable[[bytes], object] | None = None,
        how_to_resume: str = "use --resume",
    ):
        super().__init__(file.with_name(f"{file.name}.partial"))
        self.file, self.item_of, self.how_to_resume = file, item_of, how_to_resume
        self._determining = json.loads(json.dumps(record))
        self._lines_file = self.path / "lines"

    @contextlib.contextmanager
    def writing(self, resume: bool) -> Iterator[tuple[BinaryIO, int]]:
        """Context manager that opens the file for writing and completes it at the end of the block.

        Args:
            resume: whether to resume an interrupted file, if it exists.

        Yields:
            The open file, and the number of items that it already contains.

        Raises:
            ValueError: if an interrupted file exists and `resume` is false or its record differs, or if another
                process is writing the file.
        """
        self._begin(resume)
        with open(self._lines_file, "a+b") as file:
            lock(file, self.path)
            try:
                yield file, self._cut(file)
            except BaseException:
                self._leave(file)
                raise
        self._lines_file.replace(self.file)
        self._remove_folder()

    def _begin(self, resume):
        """Writes the record, or checks that the existing one allows resumption."""
        if self.is_free():
            write_json(self.record_file, self._determining)
            return
        if not resume:
            raise ModelDirectoryError(
                f"{self.path} contains an interrupted translation; {self.how_to_resume} or delete it"
            )
        found, wanted = self.record(), self._determining
        differing = [name for name in {**wanted, **found} if found.get(name, _NONE) != wanted.get(name, _NONE)]
        if differing:
            raise ModelDirectoryError(
                f"{self.path} contains an interrupted translation with another {', '.join(differing)}"
            )

    def _cut(self, file) -> int:
        """Removes an item that may be incomplete at the end. Returns the number of the others."""
        file.seek(0)
        count = end = 0
        for position in self._ends(itertools.takewhile(lambda line: line.endswith(b"\n"), file)):
            count, end = count + 1, position
        file.truncate(end)
        file.seek(end)
        return count

    def _ends(self, lines):
        """Yields the end of each complete item, in bytes."""
        position, previous = 0, None
        for number, line in enumerate(lines):
            item = self.item_of(line) if self.item_of else number
            if number and item != previous:
                yield position
            previous, position = item, position + len(line)
        if position and not self.item_of:
            yield position

    def _leave(self, file):
        """Keeps the lines for resumption, or removes the folder if there are no lines."""
        file.flush()
        if file.tell():
            print(f"The incomplete translation is in {self.path}; {self.how_to_resume} to continue", file=sys.stderr)
        else:
            self._lines_file.unlink()
            self._remove_folder()

    def _remove_folder(self):
        self.record_file.unlink()
        clean_up(self.path)
        with contextlib.suppress(OSError):  # The folder contains a file of another program.
            self.path.rmdir()
