import numpy as np

from keras_transformer.storage.rows import TokenSide, laid_out, ranges


def test_rows_are_laid_out_as_in_this_picture():
    side = TokenSide(np.array([21, 3, 22, 23, 24, 3, 25, 3], "uint16"), np.array([2, 4, 2], "int32"))
    rows = laid_out(side, np.array([1, 0, 2]), np.array([1, 2, 1]), shape=(3, 7))
    assert rows.ids.tolist() == [[22, 23, 24, 3, 21, 3, 0], [25, 3, 0, 0, 0, 0, 0], [0] * 7]
    assert rows.segments.tolist() == [[1, 1, 1, 1, 2, 2, 0], [1, 1, 0, 0, 0, 0, 0], [0] * 7]
    assert rows.shifted().tolist() == [[2, 22, 23, 24, 2, 21, 0], [2, 25, 0, 0, 0, 0, 0], [0] * 7]
    assert {x.dtype.name for x in (rows.ids, rows.segments, rows.shifted())} == {"int32"}


def test_ranges_have_any_sizes():
    assert ranges(np.array([5, 9, 1]), np.array([2, 0, 3])).tolist() == [5, 6, 1, 2, 3]
    assert ranges(np.array([], int), np.array([], int)).tolist() == []
