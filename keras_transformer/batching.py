"""Which lines are translated together."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

#: Sentences of a batch at most.
BATCH_SIZE = 32
#: Source tokens of a batch at most, padding counted: 32 sentences of up to 128 subwords.
BATCH_TOKENS = 4096


def check_batching(batch_size: int, batch_tokens: int) -> None:
    """Checks the limits of a batch.

    Args:
        batch_size: sentences at most.
        batch_tokens: tokens at most.

    Raises:
        ValueError: if one is not positive.
    """
    for name, value in (("batch_size", batch_size), ("batch_tokens", batch_tokens)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")


def batches_by_length(
    lengths: Sequence[int], batch_size: int = BATCH_SIZE, batch_tokens: int = BATCH_TOKENS
) -> Iterator[list[int]]:
    """Groups sentences of like length, the shortest first.

    Args:
        lengths: tokens of each sentence; those of length 0 are left out.
        batch_size: sentences of a batch at most.
        batch_tokens: tokens of a batch at most, padding counted: its sentences times the longest of
            them. A longer sentence is a batch of its own.

    Yields:
        Positions in `lengths`.

    Raises:
        ValueError: if `batch_size` or `batch_tokens` is not positive.

    Example:

    >>> list(batches_by_length([2, 9, 0, 3, 2], batch_size=3, batch_tokens=8))
    [[0, 4], [3], [1]]
    """
    check_batching(batch_size, batch_tokens)
    batch = []
    for i in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: lengths[i]):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * lengths[i] > batch_tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def pieces(items: Iterable, batch_size: int = BATCH_SIZE) -> Iterator[list]:
    """Cuts more items than memory holds into pieces of 64 batches, so that each can be sorted by length.

    Args:
        items: taken one piece at a time.
        batch_size: items of a batch.

    Yields:
        Lists of 64 * `batch_size` items, the last of fewer.

    Example:

    >>> [len(piece) for piece in pieces(range(130), batch_size=1)]
    [64, 64, 2]
    """
    items = iter(items)
    while piece := list(itertools.islice(items, 64 * batch_size)):
        yield piece
