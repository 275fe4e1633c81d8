"""What is known of the source text that a model was trained on: its language, its signs, its lines without language."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from keras_transformer.storage.model_directory import ORIGIN, ModelDirectory, ModelDirectoryError
from keras_transformer.storage.recorded_folder import read_json
from keras_transformer.text.translatable import is_translatable

#: Name of the entry in the records of tokens and models, and in the record of an export.
ENTRY = "source_text"
#: Number of lines without language from which it can be said whether a model was made to translate them.
_MIN_LINES = 20


@dataclasses.dataclass(frozen=True)
class SourceText:
    """What is known of the source text that a model was trained on.

    Args:
        language: code of the language; `None` if unknown.
        signs: the characters other than letters and digits in the text; `None` if unknown.
        untranslatable: number of lines without language; see `keras_transformer.text.translatable.is_translatable`.
        changed: number of these lines whose translation differs.
    """

    language: str | None = None
    signs: str | None = None
    untranslatable: int = 0
    changed: int = 0

    @property
    def has_untranslatable_lines(self) -> bool:
        """Whether a model of this text was made to translate lines without language, such as numbers to words."""
        return self.untranslatable >= _MIN_LINES and 2 * self.changed >= self.untranslatable

    def __add__(self, other: "SourceText") -> "SourceText":
        known = [text.signs for text in (self, other) if text.signs is not None]
        return SourceText(
            self.language or other.language,
            "".join(sorted(set("".join(known)))) if known else None,
            self.untranslatable + other.untranslatable,
            self.changed + other.changed,
        )

    @classmethod
    def of_pairs(cls, source: Iterable[str], target: Iterable[str]) -> "SourceText":
        """Counts pairs of lines.

        Args:
            source: the source lines.
            target: their translations.
        """
        source = list(source)
        pairs = [(line, other) for line, other in zip(source, target, strict=True) if not is_translatable(line)]
        pairs = [(line.strip(), other.strip()) for line, other in pairs if line.strip()]
        signs = {character for character in set().union(*source) if not character.isalnum()}
        return cls(None, "".join(sorted(signs)), len(pairs), sum(line != other for line, other in pairs))

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "SourceText":
        """Reads the record of a model directory, of tokens or of an export.

        Args:
            record: the record, which lacks the entry in files of older versions.
        """
        known = record.get(ENTRY) or {}
        language = known.get("language") or (record.get("languages") or [None])[0]
        if "language_tokens" in record:  # Each line may be in another language.
            language = None
        return cls(language, known.get("signs"), known.get("untranslatable", 0), known.get("changed", 0))

    def to_record(self) -> dict[str, Any]:
        """The entry of a record."""
        return dataclasses.asdict(self)


def source_text_of(folder: str | Path) -> SourceText:
    """What is known of the source text of a model directory, or of an export.

    Exports of older versions record nothing; then the record of the model directory that contains the export is used.
    """
    folder = Path(folder)
    origin = folder / ORIGIN
    if origin.is_file() and ENTRY in (record := read_json(origin)):
        return SourceText.from_record(record)
    for directory in (folder, *folder.absolute().parents[1:2]):
        try:
            return SourceText.from_record(ModelDirectory(directory).model_record())
        except (ModelDirectoryError, ImportError):  # PyYAML, which clients of exports need not have.
            continue
    return SourceText()
