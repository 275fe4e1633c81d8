import math
import random

import numpy as np
import pytest

from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS, BatchLimits, pad


@pytest.mark.parametrize(("batch_size", "batch_tokens"), [(1, 10_000), (7, 10_000), (10_000, 97), (5, 60), (3, 1)])
def test_limits_and_order(batch_size, batch_tokens):
    draw = random.Random(3)
    lengths = [draw.randrange(40) for _ in range(200)]
    batches = list(BatchLimits(batch_size, batch_tokens).batches(lengths))
    in_order = [i for batch in batches for i in batch]
    assert sorted(in_order) == [i for i, length in enumerate(lengths) if length]
    assert [lengths[i] for i in in_order] == sorted(length for length in lengths if length)
    for batch, following in zip(batches, batches[1:], strict=False):
        assert len(batch) <= batch_size
        assert len(batch) == 1 or len(batch) * lengths[batch[-1]] <= batch_tokens
        is_full = len(batch) == batch_size or (len(batch) + 1) * lengths[following[0]] > batch_tokens
        assert is_full


@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("sentences", [0, 1, 4, 7, 8, 50, 81])
def test_batches_for_workers_are_as_small_as_possible_without_more_rounds(workers, sentences):
    def rounds(batches):
        return math.ceil(len(list(batches)) / workers)

    lengths = [3] * sentences
    batches = BatchLimits(8).batches_for(workers, lengths)
    assert sorted(i for batch in batches for i in batch) == list(range(sentences))
    assert rounds(batches) == rounds(BatchLimits(8).batches(lengths))
    size = max(map(len, batches), default=1)
    assert size == 1 or rounds(BatchLimits(size - 1).batches(lengths)) > rounds(batches)


def test_batches_are_not_divided_in_vain():
    for limits, workers, lengths in ((BatchLimits(32), 1, [3] * 40), (BatchLimits(32, 1000), 2, [1] * 32 + [100] * 8)):
        assert [len(batch) for batch in limits.batches_for(workers, lengths)] == [32, 8]


def test_empty_lines_form_no_batches():
    assert list(BatchLimits().batches([])) == list(BatchLimits().batches([0, 0])) == []


def test_the_defaults_leave_sentences_of_128_subwords_alone():
    assert [len(batch) for batch in BatchLimits().batches([128] * 64)] == [BATCH_SIZE] * 2
    assert [len(batch) for batch in BatchLimits().batches([129] * 32)] == [31, 1]
    assert BATCH_TOKENS == 32 * 128


def test_pad_fills_with_zeros():
    matrix = pad([[5, 3], [], [6, 7, 3]])
    np.testing.assert_array_equal(matrix, [[5, 3, 0], [0, 0, 0], [6, 7, 3]])
    assert matrix.dtype == np.int32
    assert pad([]).shape == (0, 0)
