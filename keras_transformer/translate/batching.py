"""Batches of lines of similar length."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from keras_transformer.checks import at_least, require
from keras_transformer.config import PAD_ID

#: Maximum sentences per batch.
BATCH_SIZE = 32
#: Maximum tokens per batch, including padding: 32 sentences of up to 128 subwords.
BATCH_TOKENS = 4096
#: Batches per chunk of a stream. Each chunk is sorted by length.
_CHUNK_BATCHES = 64


@dataclasses.dataclass(frozen=True)
class BatchLimits:
    """Limits of a batch for translation and scoring.

    Args:
        batch_size: maximum sentences per batch.
        batch_tokens: maximum tokens per batch, including padding: the number of sentences times the length of the
            longest one. A longer sentence forms a separate batch.

    Raises:
        ValueError: if a limit is not positive.
    """

    batch_size: int = BATCH_SIZE
    batch_tokens: int = BATCH_TOKENS

    def __post_init__(self):
        require(at_least(1, **vars(self)))

    def batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Groups sentences of similar length, the shortest first.

        Args:
            lengths: number of tokens of each sentence. Sentences of length 0 are skipped.

        Yields:
            Lists of indices into `lengths`, one list per batch.

        Example:

        >>> list(BatchLimits(batch_size=3, batch_tokens=8).batches([2, 9, 0, 3, 2]))
        [[0, 4], [3], [1]]
        """
        batch = []
        for i in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
            if batch and (len(batch) == self.batch_size or (len(batch) + 1) * lengths[i] > self.batch_tokens):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def batches_for(self, workers: int, lengths: Sequence[int]) -> list[list[int]]:
        """Groups sentences as `batches` does, but in smaller batches if workers would be idle otherwise.

        Args:
            workers: number of batches that are processed at the same time.
            lengths: number of tokens of each sentence. Sentences of length 0 are skipped.

        Returns:
            Lists of indices into `lengths`, one list per batch.

        Example:

        >>> BatchLimits(batch_size=8).batches_for(workers=2, lengths=[3, 3, 3, 3])
        [[0, 1], [2, 3]]
        """
        batches = list(self.batches(lengths))
        if workers == 1 or not batches:
            return batches
        count = math.ceil(len(batches) / workers) * workers  # As many as they process in the same time.
        smaller = dataclasses.replace(self, batch_size=math.ceil(sum(map(len, batches)) / count))
        divided = list(smaller.batches(lengths))
        return divided if len(divided) <= count else batches  # More only if `batch_tokens` limits them.

    def chunks(self, items: Iterable) -> Iterator[list]:
        """Splits a stream that need not fit in memory into chunks of 64 batches.

        Example:

        >>> [len(chunk) for chunk in BatchLimits(batch_size=1).chunks(range(130))]
        [64, 64, 2]
        """
        return chunks_of(items, _CHUNK_BATCHES * self.batch_size)


def chunks_of(items: Iterable, size: int) -> Iterator[list]:
    """Splits a stream that need not fit in memory into lists of `size` items.

    Example:

    >>> list(chunks_of(range(5), 2))
    [[0, 1], [2, 3], [4]]
    """
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def pad(sentences: Sequence[Sequence[int]], pad_id: int = PAD_ID) -> np.ndarray:
    """Pads rows of ids to a matrix.

    Returns:
        Int32 array `(rows, longest_row)`.
    """
    matrix = np.full((len(sentences), max(map(len, sentences), default=0)), pad_id, "int32")
    for row, ids in zip(matrix, sentences, strict=True):
        row[: len(ids)] = ids
    return matrix
