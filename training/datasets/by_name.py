"""Corpora from TensorFlow Datasets. Requires TensorFlow."""

import contextlib
import io
import os
import sys
from pathlib import Path

import tensorflow_datasets as tfds
from absl import logging

from keras_transformer.text.languages import is_language, normal_code
from keras_transformer.training.datasets import number_words  # The import registers the builder.
from keras_transformer.training.datasets.pairs import Corpus, Pairs


def load_by_name(config) -> Corpus:
    """Loads the corpus that a `DataConfig` names."""
    try:
        builder = tfds.builder(config.dataset, data_dir=config.data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise ValueError(
            f"`dataset` must be a name of TensorFlow Datasets. Received: dataset={config.dataset!r}. "
            f"{_first_line(error)}"
        ) from error
    languages = _languages(builder, config.dataset)
    if config.reverse:
        languages = languages[::-1]
    _prepare(builder, config)
    splits = [config.train_split, config.validation_split]
    try:
        parts = builder.as_dataset(split=splits, shuffle_files=False)
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{config.dataset!r} must have the splits {splits}. Received: {sorted(builder.info.splits)}"
        ) from error
    codes = tuple(normal_code(name) if is_language(name) else None for name in languages)
    return Corpus(*(_pairs(part, languages) for part in parts), codes)


def _pairs(dataset, languages):
    def begin():
        for batch in dataset.batch(1024).as_numpy_iterator():
            yield from zip(*(map(_decoded, batch[name]) for name in languages), strict=True)

    count = int(dataset.cardinality())
    return Pairs(begin, count if count >= 0 else None)


def _decoded(text):
    return text.decode("utf-8", errors="replace").replace("\0", "")


def _prepare(builder, config):
    """Downloads the dataset if needed. If the download fails, a new and empty `data_dir` is removed."""
    is_new = config.data_dir and not Path(config.data_dir).exists()
    is_embedded = isinstance(builder, number_words.NumberWords)
    if not (is_embedded or _is_prepared(builder)):
        print(
            f"preparing {config.dataset}, with a download if needed; without a network this fails after some minutes",
            file=sys.stderr,
        )
    if is_embedded or not sys.stderr.isatty():
        tfds.disable_progress_bar()  # The bars overwrite each other, and would fill a log file.
    try:
        # TFDS prints that it downloads the embedded dataset, which it does not.
        with contextlib.redirect_stdout(io.StringIO() if is_embedded else sys.stderr):
            builder.download_and_prepare()
    except Exception as error:  # Each host has its own exceptions.
        if is_new:
            _remove_empty_folders(config.data_dir)
        raise ValueError(f"The data of {config.dataset!r} cannot be loaded: {_first_line(error)}") from error


def _is_prepared(builder):
    """Whether the dataset is on disk. Hides the warning of TFDS about an empty folder."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        return builder.is_prepared()
    finally:
        logging.set_verbosity(verbosity)


def _remove_empty_folders(path):
    for folder, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):  # Not empty: another process may be downloading to it.
            os.rmdir(folder)


def _languages(builder, name):
    features = builder.info.features
    if not isinstance(features, tfds.features.Translation):
        raise ValueError(f"`dataset` must be a translation dataset. Received: dataset={name!r}")
    return tuple(builder.info.supervised_keys or features.languages)[:2]


def _first_line(error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
