import itertools

import numpy as np
import pytest

from keras_transformer.training.config import DataConfig
from keras_transformer.training.pipeline import Buckets, filtered, training_batches, validation_batches

CONFIG = DataConfig(max_length=20, tokens_per_batch=60, num_buckets=3)


@pytest.fixture(scope="module")
def data(pairs_of, random_lengths):
    """Pairs, their buckets, and the batches of an epoch."""
    pairs, statistics = filtered(pairs_of(random_lengths), CONFIG)
    buckets = Buckets.fit(statistics.histogram, CONFIG.num_buckets, CONFIG.tokens_per_batch)
    return pairs, buckets, buckets.steps(statistics.histogram)


def batches_of(dataset, count):
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


def pair_numbers(batches):
    """Which pairs the rows of the batches are, in order."""
    first = np.concatenate([inputs["source"][:, 0] for inputs, _, _ in batches])
    return (first[first != 0] - 10).tolist()


def test_statistics_count_each_reason(pairs_of):
    lengths = [
        *[(5, 7), (20, 20), (2, 12), (4, 15)],  # Kept: the last two differ by 10 at most, or by a factor below 4.
        *[(1, 5), (5, 1), (1, 1), (1, 30)],  # An empty side has its end alone.
        *[(21, 20), (6, 40)],
        *[(2, 13), (20, 4), (3, 20)],
    ]
    kept, statistics = filtered(pairs_of(lengths), CONFIG)
    found = (statistics.pairs, statistics.empty, statistics.too_long, statistics.ratio, statistics.kept)
    assert found == (13, 4, 2, 3, 4)
    assert statistics.target_tokens == 7 + 20 + 12 + 15
    assert {n: c for n, c in enumerate(statistics.histogram) if c} == {7: 1, 20: 1, 12: 1, 15: 1}
    assert len(statistics.histogram) == CONFIG.max_length + 1
    assert [len(source) for source, _ in kept.as_numpy_iterator()] == [5, 20, 2, 4]
    assert str(statistics) == (
        "4 of 13 pairs used; left out: 4 with an empty side, 2 too long, 3 of too unlike lengths"
        "; used, but alike on both sides: 1"
    )


@pytest.mark.parametrize("lengths", [[], [(1, 4), (30, 5)]])
def test_nothing_left(pairs_of, lengths):
    with pytest.raises(ValueError, match=f"No pairs are left to use: 0 of {len(lengths)} pairs used"):
        filtered(pairs_of(lengths), CONFIG)


def test_an_epoch_holds_every_pair_once(data, random_lengths):
    pairs, buckets, steps = data
    batches = batches_of(training_batches(pairs, buckets, seed=1), 3 * steps)
    for epoch in range(3):
        numbers = pair_numbers(batches[epoch * steps : (epoch + 1) * steps])
        assert sorted(numbers) == list(range(len(random_lengths)))


def test_every_batch_has_its_buckets_whole_shape(data):
    pairs, buckets, steps = data
    shapes = set(zip(buckets.rows, buckets.lengths, strict=True))
    batches = batches_of(training_batches(pairs, buckets, seed=1), steps)
    for inputs, labels, weights in batches:
        assert {x.shape for x in (inputs["source"], inputs["target"], labels, weights)} <= shapes
        assert inputs["source"].shape == inputs["target"].shape == labels.shape == weights.shape
        longest = max((inputs["source"] != 0).sum(1).max(), (labels != 0).sum(1).max())
        assert min(length for length in buckets.lengths if length >= longest) == labels.shape[1]
    assert {labels.shape for _, labels, _ in batches} == shapes


def test_the_last_batches_are_filled_with_rows_of_no_weight(data):
    pairs, buckets, steps = data
    filled = 0
    for inputs, labels, weights in batches_of(training_batches(pairs, buckets, seed=1), steps):
        empty = inputs["source"][:, 0] == 0
        filled += empty.any()
        assert not inputs["source"][empty].any() and not inputs["target"][empty].any()
        assert not labels[empty].any() and not weights[empty].any()
    assert 0 < filled <= len(buckets.lengths)


@pytest.mark.parametrize("multiple", [2, 4, 7])
def test_batches_that_are_computed_in_parts_hold_the_same_pairs(data, multiple):
    """Rows without weight make them divisible, and the weights still sum to the slots."""
    pairs, buckets, steps = data
    whole = batches_of(training_batches(pairs, buckets, seed=1), steps)
    filled = batches_of(training_batches(pairs, buckets, seed=1, multiple=multiple), steps)
    for (inputs, labels, weights), (one_inputs, one_labels, _) in zip(filled, whole, strict=True):
        rows = len(one_labels)
        assert len(labels) == -(-rows // multiple) * multiple
        np.testing.assert_array_equal(labels[:rows], one_labels)
        np.testing.assert_array_equal(inputs["source"][:rows], one_inputs["source"])
        assert not labels[rows:].any() and not weights[rows:].any()
        assert weights.sum() == pytest.approx(weights.size, rel=1e-5)


def test_target_is_the_labels_shifted_right(data):
    pairs, buckets, steps = data
    for inputs, labels, _ in batches_of(training_batches(pairs, buckets, seed=1), steps):
        for source, target, label in zip(inputs["source"], inputs["target"], labels, strict=True):
            size = (label != 0).sum()
            if size:
                assert source[source != 0][-1] == 3
                np.testing.assert_array_equal(target[:size], [2, *label[: size - 1]])
                assert label[size - 1] == 3 and 3 not in label[: size - 1]
                assert not target[size:].any() and not label[size:].any()


def test_weights_sum_to_the_slots_and_are_equal_on_real_tokens(data):
    pairs, buckets, steps = data
    for _, labels, weights in batches_of(training_batches(pairs, buckets, seed=1), steps):
        assert weights.sum() == pytest.approx(labels.size, rel=1e-5)
        np.testing.assert_allclose(weights, (labels != 0) * labels.size / (labels != 0).sum(), rtol=1e-6)


def test_epochs_differ_in_order(data):
    pairs, buckets, steps = data
    batches = batches_of(training_batches(pairs, buckets, seed=1), 2 * steps)
    assert pair_numbers(batches[:steps]) != pair_numbers(batches[steps:])


def test_the_seed_decides_the_order(data):
    pairs, buckets, steps = data
    orders = [pair_numbers(batches_of(training_batches(pairs, buckets, seed), steps)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(("epoch", "done"), [(0, 4), (1, 0), (2, 3)])
def test_skipping_continues_exactly(data, epoch, done):
    pairs, buckets, steps = data
    whole = batches_of(training_batches(pairs, buckets, seed=1), 4 * steps)
    rest = batches_of(training_batches(pairs, buckets, seed=1, first_epoch=epoch).skip(done), steps)
    for (inputs, labels, weights), expected in zip(rest, whole[epoch * steps + done :], strict=False):
        np.testing.assert_array_equal(inputs["source"], expected[0]["source"])
        np.testing.assert_array_equal(labels, expected[1])
        np.testing.assert_array_equal(weights, expected[2])


def test_validation_is_one_pass_with_weights_of_0_and_1(data, random_lengths):
    pairs, buckets, steps = data
    dataset = validation_batches(pairs, buckets)
    batches = list(dataset.as_numpy_iterator())
    assert len(batches) == steps
    assert sorted(pair_numbers(batches)) == list(range(len(random_lengths)))
    for inputs, labels, weights in batches:
        np.testing.assert_array_equal(weights, (labels != 0).astype("float32"))
        assert inputs["source"].shape in set(zip(buckets.rows, buckets.lengths, strict=True))
    assert pair_numbers(list(dataset.as_numpy_iterator())) == pair_numbers(batches)
