"""Options of several corpora and their mixture. Their defaults are defined here only."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from keras_transformer.text.languages import is_language

#: Names of corpora become parts of file names.
_NAME = re.compile(r"[A-Za-z0-9][\w-]*")
_TAG = re.compile(r"<[^<>\s]+>")
#: Pieces of every tokenizer: special tokens and bytes.
_RESERVED = re.compile(r"<pad>|<unk>|</?s>|<0x[0-9A-F]{2}>")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """One of several training corpora.

    Args:
        source: source text: one or more files, plain or .gz, one sentence per line.
        target: target text, aligned with `source` line by line.
        dataset: TensorFlow Datasets name of a translation dataset, instead of `source`.
        reverse: translate from the dataset's second language to its first.
        train_split: TFDS split to train on.
        weight: share of the training pairs, relative to the weights of the other corpora. Default: the number of its
            pairs, so that all corpora have the same number of epochs.
        tag: symbol that starts each source sentence, such as `<bt>` for back-translated text. It becomes one subword,
            which text cannot produce.
        source_language: code of the source language, such as `en`. Default: that of `dataset`.
        target_language: code of the target language. If the corpora have several pairs of languages, the model learns
            all: each source sentence starts with a token of its target language, such as `<2de>`.
    """

    source: list[str] | str | None = None
    target: list[str] | str | None = None
    dataset: str | None = None
    reverse: bool = False
    train_split: str = "train"
    weight: float | None = None
    tag: str | None = None
    source_language: str | None = None
    target_language: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StageConfig:
    """A part of the training with one mixture of corpora.

    Args:
        weights: name of a corpus -> share of the training pairs, relative to the others. Other corpora are not used.
        epochs: the stage ends after this number of passes over the corpus `of`. The last stage has no end.
        of: name of the corpus whose passes are counted. Default: the only corpus in `weights`.
    """

    weights: dict[str, float]
    epochs: float | None = None
    of: str | None = None

    @property
    def counted(self) -> str | None:
        """The corpus whose passes are counted."""
        return self.of or (next(iter(self.weights)) if len(self.weights) == 1 else None)


def as_list(paths: list[str] | str | None) -> list[str]:
    """The files of an option that names one file, several or none."""
    return [paths] if isinstance(paths, str) else list(paths or [])


def problems_of_corpora(corpora: Mapping[str, CorpusConfig]) -> list[str]:
    """Lists what is wrong with the options of the corpora."""
    problems = []
    for name, corpus in corpora.items():
        where = f"corpora.{name}"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(f"{where}: a name must consist of letters, digits, - and _")
        for field in dataclasses.fields(corpus):
            if field.default is not None and getattr(corpus, field.name) is None:
                problems.append(f"{where}.{field.name} must not be null")
        if bool(corpus.source) == bool(corpus.dataset) or bool(corpus.source) != bool(corpus.target):
            problems.append(f"{where} must have either `source` and `target`, or `dataset`")
        elif (sizes := [len(as_list(paths)) for paths in (corpus.source, corpus.target)])[0] != sizes[1]:
            problems.append(f"{where}: `source` and `target` must have the same number of files, not {sizes}")
        if corpus.weight is not None and not 0 < corpus.weight < float("inf"):
            problems.append(f"{where}.weight must be positive, not {corpus.weight}")
        if corpus.tag is not None and (not _TAG.fullmatch(corpus.tag) or _RESERVED.fullmatch(corpus.tag)):
            problems.append(f"{where}.tag must be a symbol like <bt>, not {corpus.tag!r}")
        for side in ("source", "target"):
            code = getattr(corpus, f"{side}_language")
            if code is not None and not is_language(code):
                problems.append(f"{where}.{side}_language must be the code of a language, such as en, not {code!r}")
    weighted = [corpus.weight is not None for corpus in corpora.values()]
    if any(weighted) and not all(weighted):
        problems.append("either all corpora must have a `weight`, or none")
    return problems


def problems_of_stages(stages: Sequence[StageConfig], names: Sequence[str] | None) -> list[str]:
    """Lists what is wrong with the stages. The names of the corpora may be unknown."""
    problems = []
    for number, stage in enumerate(stages, 1):
        where, is_last = f"stage {number}", number == len(stages)
        if not stage.weights:
            problems.append(f"{where} must have `weights`")
        for name, weight in stage.weights.items():
            if names is not None and name not in names:
                problems.append(f"{where}: there is no corpus {name!r}")
            if not 0 < weight < float("inf"):
                problems.append(f"{where}: the weight of {name} must be positive, not {weight}")
        if stage.epochs is not None and not 0 < stage.epochs < float("inf"):
            problems.append(f"{where}: `epochs` must be positive and finite, not {stage.epochs}")
        if is_last and (stage.epochs is not None or stage.of is not None):
            problems.append(f"{where} is the last one and must not have `epochs` or `of`")
        if not is_last and stage.epochs is None:
            problems.append(f"{where} never ends: it must have `epochs`")
        elif not is_last and stage.counted not in stage.weights:
            problems.append(f"{where} never ends: `of` must be one of its corpora, not {stage.of!r}")
    return problems
