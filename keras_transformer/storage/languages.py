"""The languages of a model, and the tokens that select them."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.storage.model_directory import ORIGIN, ModelDirectory, ModelDirectoryError
from keras_transformer.storage.recorded_folder import read_json
from keras_transformer.text.languages import checked_language, find_language, normal_code

#: Name of the entry in the records of models and exports.
ENTRY = "language_tokens"


class Direction(NamedTuple):
    """A source language and a target language, and the tokens that a model gets for them.

    Attributes:
        source: code of the source language; `None` if unknown.
        target: code of the target language; `None` if unknown.
        source_prefix: ids of the tokens at the start of a source.
        target_prefix: ids of the tokens at the start of a target.
    """

    source: str | None = None
    target: str | None = None
    source_prefix: tuple[int, ...] = ()
    target_prefix: tuple[int, ...] = ()

    @property
    def prefixes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens at the start of a source and of a target."""
        return self.source_prefix, self.target_prefix

    def source_ids(self, ids: list[int]) -> list[int]:
        """A source with its prefix."""
        return [*self.source_prefix, *ids]


@dataclasses.dataclass(frozen=True)
class Languages:
    """The languages of a model.

    A model of one pair of languages has no tokens for them. In other models a source starts with `source_start` and the
    token of its language, if the model has tokens of source languages. The token of the target language follows them
    (Johnson et al. 2017), or, with `forces_target`, is the first one of the target (Fan et al. 2020).

    Args:
        source: code of the source language, or of the default one; `None` if unknown.
        target: code of the target language, or of the default one.
        source_tokens: code of each source language -> id of its token, or `None` if they have none. Empty: any
            language.
        target_tokens: code of each target language -> id of its token. Empty: the model has one target language.
        forces_target: whether a target starts with the token of its language.
        source_start: ids of the tokens that precede those of the languages at the start of a source, such as the
            word-boundary marker of SentencePiece. Needs `target_tokens`.

    References:
        Johnson et al. 2017, "Google's Multilingual Neural Machine Translation System".
        Fan et al. 2020, "Beyond English-Centric Multilingual Machine Translation".
    """

    source: str | None = None
    target: str | None = None
    source_tokens: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    target_tokens: Mapping[str, int] = dataclasses.field(default_factory=dict)
    forces_target: bool = False
    source_start: tuple[int, ...] = ()

    def __post_init__(self):
        if self.target_tokens and len({i is None for i in self.source_tokens.values()}) > 1:
            raise ValueError(f"Either all source languages must have a token, or none. Received: {self.source_tokens}")
        if self.source_start and not self.target_tokens:
            raise ValueError(f"`source_start` needs `target_tokens`. Received: source_start={self.source_start}")

    @property
    def are_several(self) -> bool:
        """Whether tokens select the target language."""
        return bool(self.target_tokens)

    @property
    def has_default(self) -> bool:
        """Whether a text can be translated without naming its languages."""
        return not any(code is None and _must_be_named(tokens) for code, tokens in self._sides().values())

    def _sides(self):
        return {"source": (self.source, self.source_tokens), "target": (self.target, self.target_tokens)}

    @property
    def max_source_prefix(self) -> int:
        """The largest number of tokens at the start of a source."""
        of_source = any(i is not None for i in self.source_tokens.values())
        return len(self.source_start) + of_source + (self.are_several and not self.forces_target)

    @property
    def tokens(self) -> tuple:
        """The languages and their tokens, without the default."""
        return self.source_tokens, self.target_tokens, self.forces_target, self.source_start

    def direction(self, source: str | None = None, target: str | None = None) -> Direction:
        """Finds the languages that codes name; see `find_language`.

        Args:
            source: code of the source language. Default: `source` of the model.
            target: code of the target language. Default: `target` of the model.

        Raises:
            ValueError: if the model does not know a language, or needs one that is not given. Source languages without
                tokens need not be given.
        """
        given = {"source": source, "target": target}
        return self._direction(*(self._found(side, code) for side, code in given.items()))

    def _direction(self, source: str | None, target: str | None) -> Direction:
        """The direction of known languages."""
        of_source = (*self.source_start, *_prefix(self.source_tokens, source))
        of_target = _prefix(self.target_tokens, target)
        if self.forces_target:
            return Direction(source, target, of_source, of_target)
        return Direction(source, target, of_source + of_target)

    def directions(self) -> Iterator[Direction]:
        """All directions between different languages of the model that are known by name."""
        sources, targets = self.source_tokens or [self.source], self.target_tokens or [self.target]
        for source, target in itertools.product(sources, targets):
            if source != target:
                yield self._direction(source, target)

    def with_default(self, source: str | None, target: str | None) -> "Languages":
        """Replaces the default direction. `None` keeps a side. A model without tokens of languages accepts any code.

        Raises:
            ValueError: if a model of several languages does not know a language.
        """
        if not self.are_several:
            return dataclasses.replace(
                self,
                source=self.source if source is None else normal_code(source),
                target=self.target if target is None else normal_code(target),
            )
        given = {side: code for side, code in (("source", source), ("target", target)) if code is not None}
        return dataclasses.replace(self, **{side: self._found(side, code) for side, code in given.items()})

    def _found(self, side: str, code: str | None) -> str | None:
        """The language that a code names on a side, `"source"` or `"target"`."""
        default, tokens = self._sides()[side]
        name = f"{side}_language"
        if code is None:
            if default is None and _must_be_named(tokens):
                raise ValueError(f"`{name}` must be given, one of the languages of the model: {', '.join(tokens)}")
            return default or (next(iter(tokens)) if len(tokens) == 1 else None)
        known = [*tokens] if tokens or self.are_several else [default] * (default is not None)
        if not known:  # Any language.
            return normal_code(code)
        found = find_language(code, known)
        if found is None:
            raise ValueError(f"`{name}` must be a language of the model: {', '.join(known)}. Received: {name}={code!r}")
        return found

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Languages":
        """Reads the record of a model directory or of an export. Older ones lack the entries."""
        source, target = record.get("languages") or (None, None)
        tokens = record.get(ENTRY) or {}
        return cls(source, target, **{**tokens, "source_start": tuple(tokens.get("source_start", ()))})

    def to_record(self) -> dict[str, Any]:
        """The entries of a record. A model of one pair of languages has no tokens."""
        record: dict[str, Any] = {"languages": [self.source, self.target]}
        if self.are_several:
            tokens = {"source_tokens": {**self.source_tokens}, "target_tokens": {**self.target_tokens}}
            others = {"forces_target": self.forces_target, "source_start": [*self.source_start]}
            record[ENTRY] = {**tokens, **others}
        return record


def _must_be_named(tokens) -> bool:
    """Whether a translation must name one of the languages."""
    return len(tokens) > 1 and None not in tokens.values()


def _prefix(tokens: Mapping[str, Any], code: str | None) -> tuple[int, ...]:
    """The token of a language, if it has one."""
    token = None if code is None else tokens.get(code)
    return () if token is None else (token,)


def require_languages(folder: str | Path, source: str | None, target: str | None) -> Direction:
    """The direction of a model that options name; see `Languages.direction`.

    Raises:
        ValueError: if the model does not know a language, or needs one that is not given. Also if the model does not
            list its languages, and a code is not that of a language.
    """
    languages = languages_of(folder)
    direction = languages.direction(source, target)
    if direction.source not in languages.source_tokens:
        checked_language("source_language", source)
    if direction.target not in languages.target_tokens:
        checked_language("target_language", target)
    return direction


def languages_of(folder: str | Path) -> Languages:
    """The languages of a model directory, or of an export, which records them as the model directory does."""
    folder = Path(folder)
    if (folder / ORIGIN).is_file():
        return Languages.from_record(read_json(folder / ORIGIN))
    try:
        return Languages.from_record(ModelDirectory(folder).model_record())
    except (ModelDirectoryError, ImportError):  # PyYAML, which clients of exports need not have.
        return Languages()
