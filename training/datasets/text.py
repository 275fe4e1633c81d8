"""Aligned text files."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_transformer.text.files import UTF_8, TextLines
from keras_transformer.training.datasets.pairs import Corpus, Pairs

#: Without validation files, every 100th line is held out for validation.
HELD_OUT_EVERY = 100
#: Maximum number of lines that are held out.
HELD_OUT_MOST = 2_000


def read_pairs(source: str | Path, target: str | Path, encoding: str = UTF_8) -> Iterator[tuple[str, str]]:
    """The pairs of lines of two text files, plain or gzipped, one at a time.

    Args:
        source: a file.
        target: a file of as many lines.
        encoding: of both files.

    Returns:
        Iterator of lines without their ends.

    Raises:
        ValueError: if one is no regular file, cannot be read, is empty or in another encoding, or they are of
            different length; at once.
    """
    for path in (source, target):
        if Path(path).exists() and not Path(path).is_file():  # It is read twice.
            raise ValueError(f"Text to score must be in regular files. Received: {path}")
    return iter(_file_pairs([source], [target], encoding))


def load_text(config) -> Corpus:
    """The corpus of the text files that a `DataConfig` names.

    Args:
        config: a `keras_transformer.training.data_config.DataConfig`.

    Returns:
        `Corpus`.

    Raises:
        ValueError: if a file is missing, empty or in another encoding, or the sides do not align.
    """
    pairs = _file_pairs(config.source, config.target, config.encoding)
    if config.validation_source:
        validation_files = config.validation_source, config.validation_target
        return Corpus(pairs, _file_pairs(*validation_files, config.encoding))
    if pairs.count < HELD_OUT_EVERY:
        raise ValueError(
            f"`validation_source` is needed where fewer than {HELD_OUT_EVERY} lines train. "
            f"Received: {pairs.count} lines"
        )
    last = HELD_OUT_EVERY * HELD_OUT_MOST
    held_out = min(pairs.count // HELD_OUT_EVERY, HELD_OUT_MOST)

    def train():
        return (pair for i, pair in enumerate(pairs, 1) if i % HELD_OUT_EVERY or i > last)

    def validation():
        return itertools.islice(pairs, HELD_OUT_EVERY - 1, last, HELD_OUT_EVERY)

    return Corpus(Pairs(train, pairs.count - held_out), Pairs(validation, held_out))


def _file_pairs(sources: Sequence[str], targets: Sequence[str], encoding: str) -> Pairs:
    if len(sources) != len(targets):
        raise ValueError(f"As many source as target files are needed. Received: {len(sources)} and {len(targets)}")
    total = 0
    for source, target in zip(sources, targets, strict=True):
        counts = [_count_lines(path, encoding) for path in (source, target)]
        if counts[0] != counts[1]:
            raise ValueError(f"Files do not align: {source} has {counts[0]} lines, {target} has {counts[1]}")
        total += counts[0]

    def begin():
        for source, target in zip(sources, targets, strict=True):
            yield from zip(_lines(source, encoding), _lines(target, encoding), strict=True)

    return Pairs(begin, total)


def _lines(path, encoding):
    with TextLines(path, encoding) as lines:
        yield from lines


def _count_lines(path, encoding) -> int:
    """Decodes all of the file, so that a fault in its text shows before any work is done."""
    status = Path(path).stat() if Path(path).exists() else None
    return _count_once(path, encoding, status and (status.st_mtime_ns, status.st_size))


@functools.lru_cache
def _count_once(path, encoding, version) -> int:
    """The count of one version of a file: a run asks for it before and after the import of Keras."""
    count = sum(1 for _ in _lines(path, encoding))
    if not count:
        raise ValueError(f"{path} is empty")
    return count
