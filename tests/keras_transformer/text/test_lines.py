import re

import pytest

from keras_transformer.text.lines import MAX_LENGTH, checked_lines, encode_lines, max_tokens


class Letters:
    """A tokenizer of one subword a letter."""

    def encode(self, lines):
        return [[*map(ord, line), 3] for line in lines]


@pytest.mark.parametrize(("num_positions", "longest"), [(None, 512), (513, 512), (9000, 512), (512, 511), (30, 29)])
def test_the_end_needs_a_position_too(num_positions, longest):
    assert max_tokens(num_positions) == longest <= MAX_LENGTH


def test_lines_that_fit_are_not_cut():
    assert encode_lines(Letters(), ["ab", "", "abc"], 3) == [[97, 98, 3], [3], [97, 98, 99, 3]]


def test_longer_ones_keep_their_end_and_are_named():
    with pytest.warns(UserWarning) as caught:
        assert encode_lines(Letters(), ["ab", "a" * 70, "abc"], 2) == [[97, 98, 3], [97, 97, 3], [97, 98, 3]]
    first, second = (str(warning.message) for warning in caught)
    assert re.search(rf"line 2 .*\b70 subwords.*\b2: {'a' * 60}…$", first)
    assert re.search(r"line 3 .*\b3 subwords.*\b2: abc…$", second)


def test_any_iterable_of_strings_is_lines():
    assert checked_lines("lines", (line for line in ["one", "\ud800 two"])) == ["one", "? two"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("one", "`target`.*list.*Received: 'one'"),
        (b"one", "`target`.*list.*Received: b'one'"),
        (["one", 3], "`target`.*strings.*Received: 3"),
    ],
)
def test_values_that_are_not_lines_are_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        checked_lines("target", lines)
