"""Aligned text files."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_transformer.checks import require, same_number
from keras_transformer.counting import counted
from keras_transformer.text.files import UTF_8, TextLines
from keras_transformer.training.datasets.pairs import Corpus, Lines, Pairs

#: Without validation files, every 100th line is held out for validation.
HELD_OUT_EVERY = 100
#: Maximum number of held-out lines.
HELD_OUT_MOST = 2_000


def read_pairs(source: str | Path, target: str | Path, encoding: str = UTF_8) -> Iterator[tuple[str, str]]:
    """Iterates over the pairs of lines of two text files, plain or gzipped.

    Args:
        source: the source file.
        target: the target file, with the same number of lines.
        encoding: encoding of both files.

    Returns:
        Iterator of lines without line ends.

    Raises:
        ValueError: if a path is not a regular file, or a file is unreadable, empty or in another encoding, or the
            numbers of lines differ. The files are checked before the iterator is returned.
    """
    for path in (source, target):
        if Path(path).exists() and not Path(path).is_file():  # Files are read twice, which pipes do not allow.
            raise ValueError(f"`source` and `target` must be regular files. Received: {path}")
    return iter(text_pairs([source], [target], encoding))


def load_text(config) -> Corpus:
    """Loads the corpus of the text files of a `DataConfig`."""
    pairs = text_pairs(config.source, config.target, config.encoding)
    if config.validation_source:
        validation_files = config.validation_source, config.validation_target
        return Corpus(pairs, text_pairs(*validation_files, config.encoding))
    if pairs.count < HELD_OUT_EVERY:
        raise ValueError(
            f"`validation_source` must be given if the training text has fewer than {HELD_OUT_EVERY} lines. "
            f"Received: {counted(pairs.count, 'line')}"
        )
    last = HELD_OUT_EVERY * HELD_OUT_MOST
    held_out = min(pairs.count // HELD_OUT_EVERY, HELD_OUT_MOST)

    def train():
        return (pair for i, pair in enumerate(pairs, 1) if i % HELD_OUT_EVERY or i > last)

    def validation():
        return itertools.islice(pairs, HELD_OUT_EVERY - 1, last, HELD_OUT_EVERY)

    return Corpus(Pairs(train, pairs.count - held_out), Pairs(validation, held_out))


def text_pairs(sources: Sequence[str | Path], targets: Sequence[str | Path], encoding: str) -> Pairs:
    """The pairs of lines of aligned text files. Checks that they are readable and aligned."""
    require(same_number("files", source=sources, target=targets))
    total = 0
    for source, target in zip(sources, targets, strict=True):
        counts = [_count_lines(path, encoding) for path in (source, target)]
        if counts[0] != counts[1]:
            raise ValueError(
                f"Source and target must have the same number of lines. "
                f"Received: {counted(counts[0], 'line')} in {source}, {counts[1]} in {target}"
            )
        total += counts[0]

    def begin():
        for source, target in zip(sources, targets, strict=True):
            yield from zip(_lines(source, encoding), _lines(target, encoding), strict=True)

    return Pairs(begin, total)


def text_lines(paths: Sequence[str | Path], encoding: str) -> Lines:
    """The lines of text files. Checks that they are readable."""
    total = sum(_count_lines(path, encoding) for path in paths)
    return Lines(lambda: itertools.chain.from_iterable(_lines(path, encoding) for path in paths), total)


def _lines(path, encoding):
    with TextLines(path, encoding) as lines:
        yield from lines


def _count_lines(path, encoding) -> int:
    """Counts and decodes the lines, so that encoding errors are found before any work starts."""
    status = Path(path).stat() if Path(path).exists() else None
    return _count_once(path, encoding, status and (status.st_mtime_ns, status.st_size))


@functools.lru_cache
def _count_once(path, encoding, version) -> int:
    """The count for one version of a file. A run counts before and after the import of Keras."""
    count = sum(1 for _ in _lines(path, encoding))
    if not count:
        raise ValueError(f"{path} is empty")
    return count
