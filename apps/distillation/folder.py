"""The output folder of a distillation. Only this module knows the names of the files."""

from collections.abc import Iterator
from pathlib import Path

from keras_transformer.storage.atomic_files import delete
from keras_transformer.storage.recorded_folder import ModelDirectoryError, RecordedFolder, write_json
from keras_transformer.storage.resumable_file import ResumableFile
from keras_transformer.storage.token_directory import SIDES, TokenDirectory


class DistillationFolder(RecordedFolder):
    """The files in the output of a distillation.

    distillation.json                     what determines the other files
    translations.jsonl                    all hypotheses, as `translate --json` writes them
    reverse_scores.txt                    scores of the chosen hypotheses by a reverse model
    train.source.txt, train.target.txt    the pairs to train on
    tokens                                the same pairs, prepared for `train`

    Args:
        path: the folder, which need not exist.
    """

    record_name = "distillation.json"
    kind, foreign = "folder of a distillation", "contains no distillation"

    def __init__(self, path: str):
        super().__init__(path)
        self.translations = self.path / "translations.jsonl"
        self.reverse_scores = self.path / "reverse_scores.txt"
        self.texts = [self.path / f"train.{side}.txt" for side in SIDES]
        self.tokens = TokenDirectory(self.path / "tokens")

    def require_free(self, overwrite: bool) -> None:
        """Checks that a distillation may be written here. `overwrite` says whether earlier tokens may be replaced."""
        self.is_free()  # Other files are an error.
        self.tokens.require_free(overwrite)

    def begin(self, record: dict, overwrite: bool) -> None:
        """Writes the record. Deletes translations and scores with another record.

        Args:
            record: what determines the `translations` and the `scores`.
            overwrite: whether translations with another record may be replaced. Otherwise they are an error.
        """
        recorded = {} if self.is_free() else self.record()
        found, wanted = recorded.get("translations"), record["translations"]
        if found not in (None, wanted):
            if not overwrite:
                differing = [name for name in wanted if found.get(name) != wanted[name]]
                raise ModelDirectoryError(
                    f"{self.path} contains translations with another {', '.join(differing)}; "
                    "use --overwrite to replace them"
                )
            _delete_lines(self.translations)
        if recorded.get("scores") != record["scores"] or found != wanted:
            _delete_lines(self.reverse_scores)
        for path in (self.translations, self.reverse_scores):
            if path.exists():
                delete(resumable(path, {}).path)  # From a process that was killed when the file was complete.
        write_json(self.record_file, record)


def _delete_lines(path):
    delete(path)
    delete(resumable(path, {}).path)


def resumable(path: Path, record: dict) -> ResumableFile:
    """A file of the folder that can be resumed, with what determines its content."""
    return ResumableFile(path, record, how_to_resume="start the command again")


def written_lines(path: Path) -> Iterator[str]:
    """The lines of a file of the folder, with line ends."""
    with open(path, encoding="utf-8", newline="\n") as file:
        yield from file
