"""Parallel text: TensorFlow Datasets by name, or aligned text files."""

import dataclasses
import itertools
import sys

from keras_transformer.checks import require
from keras_transformer.text.languages import parse_language
from keras_transformer.training.datasets.pairs import Corpus, Pairs, chained
from keras_transformer.training.datasets.text import load_text, read_pairs, text_pairs

__all__ = ["Corpus", "Pairs", "chained", "check_text", "load_corpus", "load_text", "read_pairs"]


def check_text(config) -> None:
    """Checks the text files of a `DataConfig`, without TensorFlow Datasets."""
    if config.source:
        load_text(config)
    if config.corpora and config.validation_source:
        text_pairs(config.validation_source, config.validation_target, config.encoding)
    for number, part in enumerate(config.parts.values()):
        if part.source:
            is_validated_on = number == 0 and not config.validation_source
            load_text(part) if is_validated_on else text_pairs(part.source, part.target, part.encoding)


def load_corpus(config) -> Corpus:
    """Loads the corpus of a `DataConfig`.

    Args:
        config: a `DataConfig`, such as a `TrainConfig` or a `PrepareConfig`.

    Returns:
        The pairs to train on and to validate on.

    Raises:
        ValueError: if a file is missing, empty or in another encoding, the sides are not aligned, the TFDS name is
            unknown, or the dataset cannot be loaded.
    """
    if config.corpora:
        return _load_parts(config)
    if not config.source and config.dataset.startswith("number_words"):
        hint = "the text is spelled numbers; --source and --target give your own text"
        print(f"data set {config.dataset}: {hint}", file=sys.stderr)
    return _load_one(config)


def _load_one(config) -> Corpus:
    """Loads the corpus of text files or of a dataset."""
    if config.source:
        return load_text(config)
    try:
        # Text files do not need TensorFlow.
        from keras_transformer.training.datasets.by_name import load_by_name
    except ImportError as error:
        raise ValueError(
            f"`dataset` requires TensorFlow Datasets and TensorFlow ({error}). Text files (`source` and `target`) do "
            f"not. Received: dataset={config.dataset!r}"
        ) from error
    return load_by_name(config)


def _load_parts(config) -> Corpus:
    """Loads several corpora."""
    given = None
    if config.validation_source:
        given = text_pairs(config.validation_source, config.validation_target, config.encoding)
    first, *_ = config.parts
    corpora = {
        name: _load_part(part, is_validated_on=given is None and name == first) for name, part in config.parts.items()
    }
    languages = {name: corpus.languages for name, corpus in corpora.items()}
    if len({pair for pair in languages.values() if None not in pair}) < 2:
        parts = {name: corpus.train for name, corpus in corpora.items()}
        known = next(filter(any, languages.values()), (None, None))
        return Corpus(chained([*parts.values()]), given or corpora[first].validation, known, parts)
    problems = [f"corpora.{name} must have both languages" for name, pair in languages.items() if None in pair]
    codes = sorted({code for pair in languages.values() for code in pair if code})
    for one, other in itertools.combinations(codes, 2):
        if parse_language(one) == parse_language(other):
            problems.append(f"each language must have one code, not both {one} and {other}")
    if given:
        validation = [(given, (config.source_language, config.target_language))]
        if None in validation[0][1]:
            problems.append("`validation_source` requires `source_language` and `target_language`")
    else:
        corpora = {name: _load_part(part, is_validated_on=True) for name, part in config.parts.items()}
        validation = [(corpus.validation, corpus.languages) for corpus in corpora.values()]
    require(problems, of="Options of corpora in several languages")
    parts = {name: corpus.train for name, corpus in corpora.items()}
    every = chained([pairs for pairs, _ in validation])
    return Corpus(chained([*parts.values()]), every, (None, None), parts, languages, validation)


def _load_part(part, is_validated_on) -> Corpus:
    """Loads a corpus. A part of it is held out if it is validated on."""
    named = part.source_language, part.target_language
    if part.source and not is_validated_on:
        pairs = text_pairs(part.source, part.target, part.encoding)
        return Corpus(pairs, pairs, named)
    if not is_validated_on:  # The dataset need not have a split for it.
        part = dataclasses.replace(part, validation_split=part.train_split)
    corpus = _load_one(part)
    languages = tuple(one or other for one, other in zip(named, corpus.languages, strict=True))
    return dataclasses.replace(corpus, languages=languages)
