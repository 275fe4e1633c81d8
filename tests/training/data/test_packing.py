import re

import numpy as np
import pytest

from keras_transformer.training.data.batches import PackedBatches
from keras_transformer.training.data.packing import Packing
from keras_transformer.training.data_config import BatchConfig

LENGTH, ROWS = 64, 4


@pytest.fixture(scope="module")
def packed(sides_of, random_lengths):
    return PackedBatches(*sides_of(random_lengths), BatchConfig(tokens_per_batch=LENGTH * ROWS))


@pytest.fixture(scope="module")
def packing(random_lengths):
    return Packing(*random_lengths.T, lengths=(21, 21))


def rows_of(packing, seed):
    """The pairs of each row, in order."""
    order = packing.order(None if seed is None else np.random.default_rng(seed))
    return [packing.pairs_of(order, row, row + 1)[0].tolist() for row in range(packing.num_rows)]


@pytest.mark.parametrize(("seed", "epoch"), [(None, 0), (1, 0), (1, 1)])
def test_an_epoch_holds_every_pair_once_and_uncut(packed, random_lengths, seed, epoch):
    found = []
    for number in range(packed.steps):
        if seed is None:
            inputs, labels, _ = packed.validation_batch(number)
        else:
            inputs, labels, _ = packed.training_batch(seed, epoch * packed.steps + number)
        assert all(len(x) == ROWS for x in (*inputs.values(), labels))
        for row in range(ROWS):
            for segment in range(1, inputs["source_segments"][row].max() + 1):
                source, target, label = (
                    ids[row][inputs[segments][row] == segment]
                    for ids, segments in (
                        (inputs["source"], "source_segments"),
                        (inputs["target"], "target_segments"),
                        (labels, "target_segments"),
                    )
                )
                pair = source[0] - 10 if len(source) > 1 else None
                np.testing.assert_array_equal(source, [10 + pair] * (len(source) - 1) + [3])
                np.testing.assert_array_equal(label, [10 + pair] * (len(label) - 1) + [3])
                np.testing.assert_array_equal(target, [2, *label[:-1]])
                found.append((pair, len(source), len(target)))
        assert ((inputs["source_segments"] == 0) == (inputs["source"] == 0)).all()
        assert ((inputs["target_segments"] == 0) == (labels == 0)).all()
        assert ((inputs["target"] == 0) == (labels == 0)).all()
    assert sorted(found) == [(i, *sizes) for i, sizes in enumerate(random_lengths)]


@pytest.mark.parametrize("seed", [None, 1])
def test_every_pair_has_its_place(packing, random_lengths, seed):
    rows = rows_of(packing, seed)
    assert sorted(pair for row in rows for pair in row) == list(range(len(random_lengths)))
    assert all((random_lengths[row].sum(axis=0) <= 21).all() for row in rows)


def test_pairs_of_several_rows_are_numbered_within_each(packing):
    order = packing.order(None)
    pairs, segments = packing.pairs_of(order, 1, 4)
    rows = rows_of(packing, None)[1:4]
    assert pairs.tolist() == [pair for row in rows for pair in row]
    assert segments.tolist() == [i for row in rows for i in range(1, len(row) + 1)]
    assert packing.pairs_of(order, packing.num_rows - 1, packing.num_rows + 3)[0].size > 0


def test_little_is_left_empty(packing, random_lengths):
    least = -(-random_lengths.sum(axis=0).max() // 21)
    assert least <= packing.num_rows <= 1.1 * least < 0.7 * len(random_lengths)


def test_lengths_that_fill_rows_exactly_leave_nothing_empty():
    lengths = 30 * [(5, 2)] + 30 * [(2, 5)] + 10 * [(7, 7)]
    assert Packing(*np.array(lengths).T, lengths=(7, 7)).num_rows == 40


@pytest.mark.parametrize("flip", [1, -1])
def test_rows_of_two_lengths_are_filled_on_both_sides(random_lengths, flip):
    lengths = (random_lengths // (1, 3) + 1)[:, ::flip]
    places = tuple(int(-(-63 * tokens // lengths.sum(axis=0).max())) for tokens in lengths.sum(axis=0))
    packing = Packing(*lengths.T, places)
    rows = rows_of(packing, 1)
    assert sorted(pair for row in rows for pair in row) == list(range(len(lengths)))
    assert all((lengths[row].sum(axis=0) <= places).all() for row in rows)
    assert max(places) == 63 and min(places) < 30
    assert packing.num_rows <= 1.1 * (lengths.sum(axis=0) / places).max()


def test_long_rows_are_planned_in_units_of_several_places():
    lengths = np.random.default_rng(2).lognormal(4, 1, (3000, 2)).clip(1, 1023).astype("int64")
    lengths[:2] = (1023, 1), (5, 1023)
    packing = Packing(*lengths.T, lengths=(1023, 1023))
    rows = rows_of(packing, 1)
    assert sorted(pair for row in rows for pair in row) == list(range(3000))
    assert all((lengths[row].sum(axis=0) <= 1023).all() for row in rows)
    assert packing.num_rows < 1.1 * lengths.sum(axis=0).max() / 1023


@pytest.mark.parametrize("flip", [1, -1])
def test_a_short_side_is_not_planned_in_the_units_of_the_long_one(flip):
    lengths = np.random.default_rng(2).integers((8, 1), (65, 9), (5000, 2))
    row = (1024, 128)
    packing = Packing(*lengths.T[::flip], row[::flip])
    assert packing.num_rows < 1.1 * (lengths.sum(axis=0) / row).max()


def test_epochs_differ_in_the_neighbours_and_in_the_order(random_lengths):
    packing = Packing(*np.tile(random_lengths, (8, 1)).T, lengths=(21, 21))
    one, other = (rows_of(packing, (1, epoch)) for epoch in (0, 1))
    assert sorted(map(len, one)) == sorted(map(len, other))
    assert [len(row) for row in one] != [len(row) for row in other]
    together = [{frozenset(row) for row in rows if len(row) > 1} for rows in (one, other)]
    assert len(together[0] & together[1]) < 0.2 * len(together[0])


def test_the_seed_decides(packing):
    orders = [rows_of(packing, seed) for seed in (1, 1, 2, None, None)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[3] == orders[4]


@pytest.mark.parametrize("flip", [1, -1])
@pytest.mark.parametrize("lengths", [(3, 8), (9, 8)])
def test_a_sentence_longer_than_a_row_is_refused(lengths, flip):
    sides, lengths, longest = (x[::flip] for x in ((np.array([2, 3]), np.array([9, 3])), lengths, (3, 9)))
    message = f"`lengths` .*{re.escape(str(longest))}.*Received: lengths={re.escape(str(lengths))}"
    with pytest.raises(ValueError, match=message):
        Packing(*sides, lengths)
