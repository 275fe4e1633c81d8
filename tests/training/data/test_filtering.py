import re

import numpy as np
import pytest

from keras_transformer.storage.rows import TokenSide
from keras_transformer.storage.token_directory import Statistics
from keras_transformer.training.data.filtering import filter_pairs, is_surely_removed
from keras_transformer.training.data_config import DataConfig

CONFIG = DataConfig(max_length=20)
LENGTHS = [
    *[(5, 7), (20, 20), (2, 12), (4, 15)],  # Used: the last two differ by at most 10, or by a factor below 4.
    *[(1, 5), (5, 1), (1, 1), (1, 30)],  # An empty side has the end token only.
    *[(21, 20), (6, 40)],
    *[(2, 13), (20, 4), (3, 20)],
]


def test_statistics_count_each_reason(sides_of):
    is_used, statistics = filter_pairs(*sides_of(LENGTHS), CONFIG)
    assert is_used.tolist() == 4 * [True] + 9 * [False]
    assert statistics == Statistics(pairs=13, empty=4, too_long=2, ratio=3, identical=1)
    assert re.search("4 of 13 .*4 .*empty.*2 .*long.*3 .*ratio.*1 .*identical", str(statistics))


@pytest.mark.parametrize(
    ("source", "target", "removed"),
    [
        *[("", "a", True), (" \t", "a", True), ("a", "b", False)],
        *[(19 * "a ", 19 * "b ", False), (20 * "a ", 20 * "b ", True)],
        *[(12 * "a ", "b", False), ("b", 13 * "a ", True), (13 * "a ", "beaten", False)],
    ],
)
def test_pairs_that_are_removed_with_any_tokenizer(source, target, removed):
    assert is_surely_removed(source, target, CONFIG) is removed


@pytest.mark.parametrize("cut", [0, 1, 6, 13])
def test_statistics_of_parts_add_up(sides_of, cut):
    parts = [part for part in (LENGTHS[:cut], LENGTHS[cut:]) if part]
    found = sum((filter_pairs(*sides_of(part), CONFIG)[1] for part in parts), Statistics())
    assert found == filter_pairs(*sides_of(LENGTHS), CONFIG)[1]


def test_identical_pairs_have_the_same_ids():
    source, target = [4, 5, 3, 4, 3, 6, 3, 3], [4, 5, 3, 5, 3, 6, 3, 3]
    sides = (TokenSide(np.array(ids), np.array([3, 2, 2, 1])) for ids in (source, target))
    is_used, statistics = filter_pairs(*sides, CONFIG)
    assert is_used.tolist() == [True, True, True, False]
    assert (statistics.identical, statistics.empty) == (2, 1)


def test_a_tag_is_no_part_of_an_identical_pair():
    source, target = [9, 4, 5, 3, 9, 4, 3], [4, 5, 3, 5, 3]
    sides = TokenSide(np.array(source), np.array([4, 3])), TokenSide(np.array(target), np.array([3, 2]))
    assert filter_pairs(*sides, CONFIG, prefix_lengths=(1, 0))[1].identical == 1
