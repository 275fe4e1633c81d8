"""A text file that appears when it is complete. After an interruption, writing can be resumed."""

import contextlib
import fcntl
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write, clean_up
from keras_transformer.storage.json_files import read_json

#: Stands for a missing entry of a record, since `None` is a value.
_NONE = object()


class ResumableFile:
    """Writes a text file that can be resumed.

    Until the file is complete, its lines are in `NAME.partial/lines` and the record is in `NAME.partial/record.json`.

    Args:
        path: the file to write.
        record: JSON data that determine the content. Writing is resumed only with an equal record.
        item_of: called with a line, it returns the item of the line. The lines of an item follow one another. Default:
            each line is an item. On resumption an item that may be incomplete is removed: the last one, if an item may
            have several lines.
        how_to_resume: what the user does to resume, for messages.
    """

    def __init__(
        self,
        path: Path,
        record: dict,
        item_of: Callable[[bytes], object] | None = None,
        how_to_resume: str = "use --resume",
    ):
        self.path, self.item_of, self.how_to_resume = path, item_of, how_to_resume
        self.record = json.loads(json.dumps(record))
        self.folder = path.with_name(f"{path.name}.partial")
        self._lines_file, self._record_file = self.folder / "lines", self.folder / "record.json"

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
            self._lock(file)
            try:
                yield file, self._cut(file)
            except BaseException:
                self._leave(file)
                raise
        self._lines_file.replace(self.path)
        self._remove_folder()

    def _begin(self, resume):
        """Creates the folder, or checks that an existing one can be resumed."""
        if not self._record_file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            # A process that was killed before the record was complete leaves a temporary folder.
            if any(not path.name.startswith(TEMPORARY) for path in self.folder.iterdir()):
                raise ValueError(f"{self.folder} exists but contains no interrupted translation; delete or move it")
            with atomic_write(self._record_file) as temporary:
                temporary.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        elif not resume:
            raise ValueError(f"{self.folder} contains an interrupted translation; {self.how_to_resume} or delete it")
        else:
            found = read_json(self._record_file)
            differing = [
                name for name in {**self.record, **found} if found.get(name, _NONE) != self.record.get(name, _NONE)
            ]
            if differing:
                raise ValueError(
                    f"{self.folder} contains an interrupted translation with another {', '.join(differing)}"
                )

    def _lock(self, file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{self.folder} is in use by another process") from error

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
            print(f"The incomplete translation is in {self.folder}; {self.how_to_resume} to continue", file=sys.stderr)
        else:
            self._lines_file.unlink()
            self._remove_folder()

    def _remove_folder(self):
        self._record_file.unlink()
        clean_up(self.folder)
        with contextlib.suppress(OSError):  # The folder contains a file of another program.
            self.folder.rmdir()
