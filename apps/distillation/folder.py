"""The output folder of a distillation. Only this module knows the names of the files."""

import json
from collections.abc import Iterator
from pathlib import Path

from keras_transformer.storage.atomic_files import TEMPORARY, atomic_write, delete
from keras_transformer.storage.json_files import read_json
from keras_transformer.storage.model_directory import ModelDirectoryError
from keras_transformer.storage.resumable_file import ResumableFile
from keras_transformer.storage.token_directory import SIDES, TokenDirectory


class DistillationFolder:
    """The files in the output of a distillation.

    distillation.json                     what determines the other files
    translations.jsonl                    all hypotheses, as `translate --json` writes them
    reverse_scores.txt                    scores of the chosen hypotheses by a reverse model
    train.source.txt, train.target.txt    the pairs to train on
    tokens                                the same pairs, prepared for `train`

    Args:
        path: the folder, which need not exist.
    """

    def __init__(self, path: str):
        self.path = Path(path)
        self.record_file = self.path / "distillation.json"
        self.translations = self.path / "translations.jsonl"
        self.reverse_scores = self.path / "reverse_scores.txt"
        self.texts = [self.path / f"train.{side}.txt" for side in SIDES]
        self.tokens = TokenDirectory(self.path / "tokens")

    def require_free(self, overwrite: bool) -> None:
        """Checks that a distillation may be written here.

        Args:
            overwrite: whether earlier tokens may be replaced.

        Raises:
            ValueError: if the folder contains tokens, or other files.
        """
        if not self.record_file.exists() and self.path.exists():
            if not self.path.is_dir() or any(not path.name.startswith(TEMPORARY) for path in self.path.iterdir()):
                raise ModelDirectoryError(
                    f"{self.path} is not empty and contains no distillation (no {self.record_file.name})"
                )
        self.tokens.require_free(overwrite)

    def begin(self, record: dict, overwrite: bool) -> None:
        """Writes the record. Deletes translations and scores with another record.

        Args:
            record: what determines the `translations` and the `scores`.
            overwrite: whether translations with another record may be replaced.

        Raises:
            ValueError: if they may not, or the record cannot be read.
        """
        recorded = self._recorded()
        found, wanted = recorded.get("translations"), record["translations"]
        if found not in (None, wanted):
            if not overwrite:
                differing = [name for name in wanted if found.get(name) != wanted[name]]
                raise ModelDirectoryError(
                    f"{self.path} contains translations with another {', '.join(differing)}; "
                    "use --overwrite to replace them"
                )
            _delete(self.translations)
        if recorded.get("scores") != record["scores"] or found != wanted:
            _delete(self.reverse_scores)
        for path in (self.translations, self.reverse_scores):
            if path.exists():
                delete(resumable(path, {}).folder)  # From a process that was killed when the file was complete.
        with atomic_write(self.record_file) as temporary:
            temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    def _recorded(self):
        return read_json(self.record_file) if self.record_file.exists() else {}


def _delete(path):
    delete(path)
    delete(resumable(path, {}).folder)


def resumable(path: Path, record: dict) -> ResumableFile:
    """A file of the folder that can be resumed.

    Args:
        path: the file.
        record: what determines its content.
    """
    return ResumableFile(path, record, how_to_resume="start the command again")


def written_lines(path: Path) -> Iterator[str]:
    """The lines of a file of the folder, with line ends."""
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from file
