"""A text file that appears when it is whole, and that an interrupted process can go on with."""

import contextlib
import fcntl
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from keras_transformer.model_directory import atomic_write


class ResumableFile:
    """Lines that stand in `NAME.partial/lines`, beside a record of what they are made of, until the last is written.

    Args:
        path: the file to write.
        record: plain data that decide the lines; another run goes on only if its own are equal.
        lines_per_item: lines that are written for each item, as an interruption may have left some of them.
    """

    def __init__(self, path: Path, record: dict, lines_per_item: int = 1):
        self.path, self.lines_per_item = path, lines_per_item
        self.record = json.loads(json.dumps(record))
        self.folder = path.with_name(f"{path.name}.partial")
        self._lines_file, self._record_file = self.folder / "lines", self.folder / "record.json"

    @contextlib.contextmanager
    def writing(self, resume: bool) -> Iterator[tuple[BinaryIO, int]]:
        """Writes what is missing.

        Args:
            resume: go on with what an interrupted process has left, if it has.

        Yields:
            The open file, and how many items it holds already.

        Raises:
            ValueError: if there is something left and `resume` is false, if it is made of something else, or if
                another process is writing it.
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
        """Makes the folder, or checks that what is there can be gone on with."""
        if not self._record_file.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(self.folder.iterdir()):
                raise ValueError(f"{self.folder} is in the way: it holds no interrupted translation")
            with atomic_write(self._record_file) as temporary:
                temporary.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        elif not resume:
            raise ValueError(f"{self.folder} holds an interrupted translation; --resume goes on with it, or delete it")
        else:
            found = json.loads(self._record_file.read_text(encoding="utf-8"))
            differing = [name for name in {**self.record, **found} if found.get(name) != self.record.get(name)]
            if differing:
                raise ValueError(f"{self.folder} holds another translation, differing in: {', '.join(differing)}")

    def _lock(self, file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(f"{self.folder} is in use by another process") from error

    def _cut(self, file) -> int:
        """Removes the part of an item at the end, and counts the others."""
        file.seek(0)
        count = position = end = 0
        for line in file:
            count, position = count + line.endswith(b"\n"), position + len(line)
            if line.endswith(b"\n") and count % self.lines_per_item == 0:
                end = position
        file.truncate(end)
        file.seek(end)
        return count // self.lines_per_item

    def _leave(self, file):
        """Keeps the lines for another process, if there are any."""
        file.flush()
        if file.tell():
            print(f"What is done is in {self.folder}; --resume goes on with it", file=sys.stderr)
        else:
            self._lines_file.unlink()
            self._remove_folder()

    def _remove_folder(self):
        self._record_file.unlink()
        with contextlib.suppress(OSError):  # It holds a file that is not ours.
            self.folder.rmdir()
