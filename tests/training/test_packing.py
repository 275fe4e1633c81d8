import numpy as np
import pytest

from keras_transformer.training.packing import Packing, TokenSide

LENGTH, ROWS = 21, 4


def sides_of(lengths):
    """Pairs with these lengths; the first id tells one pair from another, 3 ends each side."""
    return [
        TokenSide(np.concatenate([[10 + i] * (size - 1) + [3] for i, size in enumerate(sizes)]), sizes)
        for sizes in np.array(lengths).T
    ]


@pytest.fixture(scope="module")
def packing(random_lengths):
    return Packing(*sides_of(random_lengths), LENGTH, ROWS)


def pairs_in(batches):
    """Of each row that is used: the pairs in it, in order."""
    rows = []
    for inputs, labels in batches:
        for labels_row, segments in zip(labels, inputs["target_segments"], strict=True):
            starts = np.flatnonzero(np.diff(segments, prepend=0) > 0)
            rows += [(labels_row[starts] - 10).tolist()] if len(starts) else []
    return rows


def test_a_batch_is_laid_out_as_in_this_picture():
    source = TokenSide(np.array([11, 12, 3, 13, 3]), np.array([3, 2]))
    target = TokenSide(np.array([21, 3, 22, 23, 24, 3]), np.array([2, 4]))
    ((inputs, labels),) = Packing(source, target, length=7, rows=1, multiple=2).epoch(None)
    expected = {
        "source": [[13, 3, 11, 12, 3, 0, 0]],
        "source_segments": [[1, 1, 2, 2, 2, 0, 0]],
        "target": [[2, 22, 23, 24, 2, 21, 0]],
        "target_segments": [[1, 1, 1, 1, 2, 2, 0]],
    }
    for name, row in expected.items():
        np.testing.assert_array_equal(inputs[name], row + [[0] * 7])
        assert inputs[name].dtype == np.int32
    np.testing.assert_array_equal(labels, [[22, 23, 24, 3, 21, 3, 0], [0] * 7])


@pytest.mark.parametrize("seed", [None, (1, 0), (1, 1)])
def test_an_epoch_holds_every_pair_once_and_whole(packing, random_lengths, seed):
    batches = list(packing.epoch(seed))
    assert len(batches) == packing.steps
    found = []
    for inputs, labels in batches:
        assert {x.shape for x in (*inputs.values(), labels)} == {(ROWS, LENGTH)}
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


def test_little_is_left_empty(packing, random_lengths):
    rows = len(pairs_in(packing.epoch(None)))
    least = -(-random_lengths.sum(axis=0).max() // LENGTH)
    assert least <= rows <= 1.1 * least < 0.7 * len(random_lengths)


def test_lengths_that_fill_rows_exactly_leave_nothing_empty():
    lengths = 30 * [(5, 2)] + 30 * [(2, 5)] + 10 * [(7, 7)]
    assert Packing(*sides_of(lengths), length=7, rows=8).steps == 40 // 8


def test_epochs_differ_in_the_neighbours_and_in_the_order(random_lengths):
    packing = Packing(*sides_of(np.tile(random_lengths, (8, 1))), LENGTH, ROWS)
    one, other = (pairs_in(packing.epoch((1, epoch))) for epoch in (0, 1))
    assert sorted(map(len, one)) == sorted(map(len, other))
    assert [len(row) for row in one] != [len(row) for row in other]
    together = [{frozenset(row) for row in rows if len(row) > 1} for rows in (one, other)]
    assert len(together[0] & together[1]) < 0.2 * len(together[0])


def test_the_seed_decides(packing):
    orders = [pairs_in(packing.epoch(seed)) for seed in ((1, 0), (1, 0), (2, 0), None, None)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[3] == orders[4]


def test_a_sentence_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match="`length` must be at least that of the longest sentence, 9. Received: 8"):
        Packing(*sides_of([(2, 9), (3, 3)]), length=8, rows=1)
