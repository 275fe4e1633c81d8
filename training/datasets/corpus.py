"""Where the pairs of sentences come from."""

import contextlib
import dataclasses
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from keras_transformer.text_files import readable, split_lines

#: Of text files without validation files, each line of this many goes to validation.
HELD_OUT_EVERY = 100
#: And at most so many of them.
HELD_OUT_MOST = 2_000


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Training and validation pairs, each a dataset of `(source, target)` string scalars."""

    train: tf.data.Dataset
    validation: tf.data.Dataset


def load_corpus(config) -> Corpus:
    """The corpus that a `DataConfig` names.

    Args:
        config: a `keras_transformer.training.config.DataConfig`.

    Returns:
        `Corpus`.

    Raises:
        ValueError: if a file is missing or empty, the sides do not align, the TFDS name is unknown,
            or its data cannot be had.
    """
    return _from_files(config) if config.source else _from_tfds(config)


def read_pairs(source: str | Path, target: str | Path) -> Iterator[tuple[str, str]]:
    """The pairs of lines of two text files, plain or gzipped, one at a time.

    Args:
        source: a file; UTF-8, where other bytes become replacement characters.
        target: a file of as many lines.

    Returns:
        Iterator of lines without their ends.

    Raises:
        ValueError: if one is no regular file, cannot be read or is empty, or they are of different length; at once.
    """
    for path in (source, target):
        if Path(path).exists() and not Path(path).is_file():  # It is read twice.
            raise ValueError(f"Text to score must be in regular files. Received: {path}")
    _file_pairs([source], [target])
    return zip(_iterate_lines(source), _iterate_lines(target), strict=True)


def _iterate_lines(path):
    with readable(path) as file:
        yield from split_lines(file)


def _from_files(config):
    train, count = _file_pairs(config.source, config.target)
    if config.validation_source:
        return Corpus(train, _file_pairs(config.validation_source, config.validation_target)[0])
    if count < HELD_OUT_EVERY:
        raise ValueError(
            f"`validation_source` is needed where fewer than {HELD_OUT_EVERY} lines train. Received: {count} lines"
        )
    numbered = train.enumerate()
    last = HELD_OUT_EVERY * HELD_OUT_MOST

    def held_out(i, pair):
        return (i % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) & (i < last)

    def pair_of(i, pair):
        return pair

    return Corpus(
        numbered.filter(lambda i, pair: ~held_out(i, pair)).map(pair_of),
        numbered.take(last).filter(held_out).map(pair_of),
    )


def _file_pairs(sources: Sequence[str], targets: Sequence[str]) -> tuple[tf.data.Dataset, int]:
    """The pairs, and how many lines they are."""
    if len(sources) != len(targets):
        raise ValueError(f"As many source as target files are needed. Received: {len(sources)} and {len(targets)}")
    total = 0
    for source, target in zip(sources, targets, strict=True):
        counts = [_count_lines(path) for path in (source, target)]
        if counts[0] != counts[1]:
            raise ValueError(f"Files do not align: {source} has {counts[0]} lines, {target} has {counts[1]}")
        total += counts[0]
    parts = [
        tf.data.Dataset.zip((_lines(source), _lines(target))) for source, target in zip(sources, targets, strict=True)
    ]
    pairs = parts[0]
    for part in parts[1:]:
        pairs = pairs.concatenate(part)
    return pairs, total


def _lines(path):
    return tf.data.TextLineDataset(str(path), compression_type="GZIP" if str(path).endswith(".gz") else None)


def _count_lines(path) -> int:
    count, last = 0, b"\n"
    with readable(path) as file:
        while chunk := file.read(1 << 20):
            count, last = count + chunk.count(b"\n"), chunk[-1:]
    count += last != b"\n"
    if not count:
        raise ValueError(f"{path} is empty")
    return count


def _from_tfds(config):
    import tensorflow_datasets as tfds

    import keras_transformer.training.datasets.number_words  # noqa: F401, registers the builder

    try:
        builder = tfds.builder(config.dataset, data_dir=config.data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise ValueError(
            f"Unknown TensorFlow dataset. Received: dataset={config.dataset!r}. {_first_line(error)}"
        ) from error
    languages = _languages(builder, config.dataset)
    if config.reverse:
        languages = languages[::-1]
    _prepare(builder, config)
    splits = [config.train_split, config.validation_split]
    try:
        train, validation = builder.as_dataset(split=splits, shuffle_files=False)
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"{config.dataset!r} must have the splits {splits}. It has: {sorted(builder.info.splits)}"
        ) from error
    return Corpus(
        *(part.map(lambda example: tuple(example[name] for name in languages)) for part in (train, validation))
    )


def _prepare(builder, config):
    """Downloads what is not there yet; a `data_dir` made for a download that fails is removed."""
    from keras_transformer.training.datasets import number_words

    is_new = config.data_dir and not Path(config.data_dir).exists()
    if not (builder.is_prepared() or isinstance(builder, number_words.NumberWords)):
        print(f"preparing {config.dataset}; without a network this gives up after some minutes", file=sys.stderr)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            builder.download_and_prepare()
    except Exception as error:  # Downloads fail in as many ways as there are hosts.
        if is_new:
            shutil.rmtree(config.data_dir, ignore_errors=True)
        raise ValueError(f"The data of {config.dataset!r} cannot be had: {_first_line(error)}") from error


def _languages(builder, name):
    import tensorflow_datasets as tfds

    features = builder.info.features
    if not isinstance(features, tfds.features.Translation):
        raise ValueError(f"A translation dataset is needed. Received: dataset={name!r}")
    return tuple(builder.info.supervised_keys or features.languages)[:2]


def _first_line(error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
