import collections
import itertools

import numpy as np
import pytest

from keras_transformer.training.data.batches import BucketedBatches, PackedBatches, Shape, make_batches
from keras_transformer.training.data_config import BatchConfig

CONFIG = BatchConfig(tokens_per_batch=128, num_buckets=3)


@pytest.fixture(scope="module", params=[None, 3])
def batches(request, sides_of, random_lengths):
    config = BatchConfig(tokens_per_batch=128, num_buckets=request.param)
    return make_batches(*sides_of(random_lengths), config, multiple=3)


@pytest.fixture(scope="module")
def bucketed(sides_of, random_lengths):
    return BucketedBatches(*sides_of(random_lengths), BatchConfig(tokens_per_batch=60, num_buckets=3))


def first(batches, count, seed=1, start=0):
    return [batches.training_batch(seed, step) for step in range(start, start + count)]


def validation(batches):
    return [batches.validation_batch(number) for number in range(batches.steps)]


def pair_numbers(batches):
    """The pairs in the batches, in order. The first id of a pair is its number plus 10."""
    ids = np.concatenate([labels.ravel() for _, labels, _ in batches])
    return [int(key) - 10 for key, _ in itertools.groupby(ids[ids != 0]) if key != 3]


def equal(one, other):
    return all(
        np.array_equal(a, b)
        for (inputs, *rest), (others, *other_rest) in zip(one, other, strict=True)
        for a, b in zip([*inputs.values(), *rest], [*others.values(), *other_rest], strict=True)
    )


def test_each_epoch_holds_every_pair_once_in_another_order(batches, random_lengths):
    found = first(batches, 2 * batches.steps)
    orders = [pair_numbers(found[: batches.steps]), pair_numbers(found[batches.steps :])]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(len(random_lengths)))
    assert orders[0] != orders[1]


def test_the_seed_decides_the_order(batches):
    one, again, other = (first(batches, batches.steps, seed) for seed in (1, 1, 2))
    assert equal(one, again) and not equal(one, other)


@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize("done", [0, 1, 3])
def test_training_begins_at_any_step(batches, epoch, done):
    start = epoch * batches.steps + done
    whole = first(batches, start + 5)
    assert equal(first(batches, 5, start=start), whole[start:])


def test_no_earlier_batch_is_made(batches, monkeypatch):
    made = []
    laid_out = type(batches)._laid_out
    monkeypatch.setattr(
        type(batches), "_laid_out", lambda self, order, number: made.append(number) or laid_out(self, order, number)
    )
    first(batches, 1, start=10**9 * batches.steps + 2)
    assert made == [2]


def test_the_weights_sum_to_the_slots_and_are_equal_on_real_tokens(batches):
    for _, labels, weights in first(batches, batches.steps):
        assert len(labels) % 3 == 0 and weights.dtype == np.float32
        assert weights.sum() == pytest.approx(labels.size, rel=1e-5)
        np.testing.assert_allclose(weights, (labels != 0) * labels.size / (labels != 0).sum(), rtol=1e-6)


def test_validation_is_one_pass_with_weights_of_0_and_1(batches, random_lengths):
    one, again = (validation(batches) for _ in range(2))
    assert len(one) == batches.steps and equal(one, again)
    assert sorted(pair_numbers(one)) == list(range(len(random_lengths)))
    assert all(np.array_equal(weights, labels != 0) for _, labels, weights in one)


@pytest.mark.parametrize("make", [PackedBatches, BucketedBatches])
def test_padding_is_the_share_of_empty_places(sides_of, random_lengths, make):
    batches = make(*sides_of(random_lengths), CONFIG)
    found = np.concatenate([labels.ravel() for _, labels, _ in validation(batches)])
    assert batches.padding == pytest.approx((found == 0).mean())
    assert batches.tokens == (found != 0).sum()


def test_the_shapes_are_those_that_come(batches):
    found = collections.Counter()
    for inputs, *rest in first(batches, batches.steps):
        assert tuple(inputs) == batches.inputs
        (source,) = {ids.shape for name, ids in inputs.items() if name.startswith("source")}
        (target,) = {x.shape for x in (*rest, *(ids for name, ids in inputs.items() if name.startswith("target")))}
        assert source[0] == target[0]
        found[Shape(*source, target[1])] += 1
    whole = [shape._replace(rows=-(-shape.rows // 3) * 3) for shape in batches.shapes]
    assert found == dict(zip(whole, batches.steps_each, strict=True))
    assert [batches.filled(shape) for shape in batches.shapes] == whole
    assert all(shape.rows * max(shape[1:]) <= 128 for shape in batches.shapes)


@pytest.mark.parametrize("num_buckets", [None, 3])
def test_the_longest_sentence_needs_room(sides_of, num_buckets):
    with pytest.raises(ValueError, match="`tokens_per_batch` .*9.*Received: tokens_per_batch=8"):
        make_batches(*sides_of([(2, 9), (3, 3)]), BatchConfig(tokens_per_batch=8, num_buckets=num_buckets))


def test_packed_rows_are_long_enough_to_be_full(sides_of):
    assert PackedBatches(*sides_of(50 * [(4, 4)]), CONFIG).shapes == [(2, 64, 64)]


@pytest.mark.parametrize(
    ("pair", "shape"), [((130, 130), (3, 133, 133)), ((130, 4), (3, 133, 5)), ((4, 130), (3, 5, 133))]
)
def test_packed_rows_fill_the_batch(sides_of, pair, shape):
    assert PackedBatches(*sides_of(9 * [pair]), BatchConfig(tokens_per_batch=401)).shapes == [shape]


@pytest.mark.parametrize("flip", [1, -1])
def test_the_side_of_fewer_tokens_has_shorter_packed_rows(sides_of, random_lengths, flip):
    sides = sides_of(np.tile(random_lengths // (1, 3) + 1, (4, 1)))
    batches = PackedBatches(*sides[::flip], CONFIG)
    (shape,) = batches.shapes
    share = sides[1].lengths.sum() / sides[0].lengths.sum()
    assert shape == (2, *(64, -(-64 * share // 1))[::flip]) and share < 0.5
    assert batches.padding < 0.1


def test_the_longest_sentence_has_room_in_packed_rows(sides_of):
    assert PackedBatches(*sides_of([*(40 * [(8, 2)]), (2, 60)]), CONFIG).shapes == [(2, 64, 60)]


@pytest.mark.parametrize(("num_buckets", "kind"), [(None, PackedBatches), (1, BucketedBatches), (3, BucketedBatches)])
def test_batches_are_packed_unless_there_are_buckets(sides_of, num_buckets, kind):
    options = {} if num_buckets is None else {"num_buckets": num_buckets}
    made = make_batches(*sides_of([(2, 9), (3, 3)]), BatchConfig(**options), multiple=5)
    assert type(made) is kind and made.multiple == 5


def test_every_batch_has_the_least_of_the_lengths(bucketed):
    lengths = [max(shape.source, shape.target) for shape in bucketed.shapes]
    for inputs, labels, _ in first(bucketed, bucketed.steps):
        sides = inputs["source"], labels
        longest = max((ids != 0).sum(1).max() for ids in sides)
        assert min(length for length in lengths if length >= longest) == max(ids.shape[1] for ids in sides)


def test_buckets_fill_the_batch_on_the_longer_side(sides_of):
    pairs = 30 * [(2, 1), (4, 2), (9, 3), (8, 4)]
    batches = BucketedBatches(*sides_of(pairs), BatchConfig(tokens_per_batch=60, num_buckets=2))
    assert batches.shapes == [(15, 4, 2), (6, 9, 4)]


def test_the_buckets_are_mixed(sides_of):
    batches = BucketedBatches(*sides_of(40 * [(3, 3), (9, 9)]), BatchConfig(tokens_per_batch=18, num_buckets=2))
    lengths = [labels.shape[1] for _, labels, _ in first(batches, batches.steps)]
    assert set(lengths) == {3, 9}
    assert sum(a != b for a, b in itertools.pairwise(lengths)) > 5


def test_the_last_batch_of_a_bucket_is_filled_with_rows_of_no_weight(bucketed):
    filled = 0
    for inputs, labels, weights in first(bucketed, bucketed.steps):
        empty = inputs["source"][:, 0] == 0
        filled += empty.any()
        assert not inputs["source"][empty].any() and not inputs["target"][empty].any()
        assert not labels[empty].any() and not weights[empty].any()
    assert 0 < filled <= len(bucketed.shapes)


@pytest.mark.parametrize("make", [PackedBatches, BucketedBatches])
@pytest.mark.parametrize("multiple", [2, 4, 7])
def test_batches_that_are_computed_in_parts_hold_the_same_pairs(sides_of, random_lengths, make, multiple):
    whole, filled = (make(*sides_of(random_lengths), CONFIG, multiple=n) for n in (1, multiple))
    for ours, theirs in zip(first(filled, filled.steps), first(whole, whole.steps), strict=True):
        rows = len(theirs[1])
        assert len(ours[1]) == -(-rows // multiple) * multiple
        assert equal([({k: v[:rows] for k, v in ours[0].items()}, ours[1][:rows])], [theirs[:2]])
        assert not ours[1][rows:].any() and not ours[2][rows:].any()


def test_target_is_the_labels_shifted_right(bucketed):
    for inputs, labels, _ in first(bucketed, bucketed.steps):
        for source, target, label in zip(inputs["source"], inputs["target"], labels, strict=True):
            size = (label != 0).sum()
            if size:
                assert source[source != 0][-1] == 3
                np.testing.assert_array_equal(target[:size], [2, *label[: size - 1]])
                assert label[size - 1] == 3 and 3 not in label[: size - 1]
                assert not target[size:].any() and not label[size:].any()
