"""Parallel text: TensorFlow Datasets by name, or aligned text files."""

import dataclasses

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
    """Loads several corpora. The first one is validated on if there are no validation files."""
    validation, languages, parts = None, (None, None), {}
    if config.validation_source:
        validation = text_pairs(config.validation_source, config.validation_target, config.encoding)
    for name, part in config.parts.items():
        if part.source and validation:
            parts[name] = text_pairs(part.source, part.target, part.encoding)
            continue
        if validation:  # The dataset need not have a split for it.
            part = dataclasses.replace(part, validation_split=part.train_split)
        corpus = load_corpus(part)
        parts[name], validation = corpus.train, validation or corpus.validation
        languages = languages if any(languages) else corpus.languages
    return Corpus(chained([*parts.values()]), validation, languages, parts)
