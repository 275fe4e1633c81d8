import itertools

import numpy as np
import pytest

from keras_transformer.training.batches import BATCHINGS
from keras_transformer.training.config import DataConfig
from keras_transformer.training.pipeline import filtered

CONFIG = DataConfig(max_length=20, tokens_per_batch=128, num_buckets=3)


@pytest.fixture(scope="module", params=BATCHINGS)
def batches(request, pairs_of, random_lengths):
    return BATCHINGS[request.param](*filtered(pairs_of(random_lengths), CONFIG), CONFIG, multiple=3)


def first(dataset, count):
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


def pair_numbers(batches):
    """Which pairs the batches hold, in order; each pair's ids are its number and 10, but the last."""
    ids = np.concatenate([labels.ravel() for _, labels, _ in batches])
    return [int(key) - 10 for key, _ in itertools.groupby(ids[ids != 0]) if key != 3]


def equal(one, other):
    return all(
        np.array_equal(a, b)
        for (inputs, *rest), (others, *other_rest) in zip(one, other, strict=True)
        for a, b in zip([*inputs.values(), *rest], [*others.values(), *other_rest], strict=True)
    )


def test_each_epoch_holds_every_pair_once_in_another_order(batches, random_lengths):
    found = first(batches.training(seed=1), 2 * batches.steps)
    orders = [pair_numbers(found[: batches.steps]), pair_numbers(found[batches.steps :])]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(len(random_lengths)))
    assert orders[0] != orders[1]


def test_the_seed_decides_the_order(batches):
    one, again, other = (first(batches.training(seed), batches.steps) for seed in (1, 1, 2))
    assert equal(one, again) and not equal(one, other)


@pytest.mark.parametrize(("epoch", "done"), [(0, 4), (1, 0), (2, 3)])
def test_skipping_continues_exactly(batches, epoch, done):
    start = epoch * batches.steps + done
    whole = first(batches.training(seed=1), start + 5)
    assert equal(first(batches.training(1, epoch).skip(done), 5), whole[start:])


def test_the_weights_sum_to_the_slots_and_are_equal_on_real_tokens(batches):
    for _, labels, weights in first(batches.training(seed=1), batches.steps):
        assert len(labels) % 3 == 0
        assert weights.sum() == pytest.approx(labels.size, rel=1e-5)
        np.testing.assert_allclose(weights, (labels != 0) * labels.size / (labels != 0).sum(), rtol=1e-6)


def test_validation_is_one_pass_with_weights_of_0_and_1(batches, random_lengths):
    one, again = (list(batches.validation().as_numpy_iterator()) for _ in range(2))
    assert len(one) == batches.steps and equal(one, again)
    assert sorted(pair_numbers(one)) == list(range(len(random_lengths)))
    assert all(np.array_equal(weights, labels != 0) for _, labels, weights in one)


def test_padding_is_the_share_of_empty_places(pairs_of, random_lengths):
    for make in BATCHINGS.values():
        batches = make(*filtered(pairs_of(random_lengths), CONFIG), CONFIG)
        found = np.concatenate([labels.ravel() for _, labels, _ in batches.validation().as_numpy_iterator()])
        assert batches.padding == pytest.approx((found == 0).mean())


def test_the_shapes_are_those_that_come(batches):
    shapes = {
        (-(-rows // 3) * 3, length)
        for length, rows in zip(batches.shapes["lengths"], batches.shapes["rows"], strict=True)
    }
    assert {labels.shape for _, labels, _ in first(batches.training(seed=1), batches.steps)} == shapes


def test_packed_rows_are_long_enough_to_be_full(pairs_of):
    packed = BATCHINGS["packed"](*filtered(pairs_of(50 * [(4, 4)]), CONFIG), CONFIG)
    assert packed.shapes == {"lengths": [64], "rows": [2]}
