import math
import sys

import pytest

from keras_transformer.checks import at_least, counts, fields, needs, one_of, positive, require, same_number, within

NAN = math.nan


@pytest.mark.parametrize(
    ("problems", "message"),
    [
        (at_least(1, size=0), "`size` must be at least 1. Received: size=0"),
        (at_least(0, size=NAN), "`size` must be at least 0. Received: size=nan"),
        (counts(1, size=2.0), "`size` must be an integer. Received: size=2.0"),
        (counts(1, size=None), "`size` must be an integer. Received: size=None"),
        (counts(1, size=0), "`size` must be at least 1. Received: size=0"),
        (positive(rate=0), "`rate` must be positive and finite. Received: rate=0"),
        (positive(rate=math.inf), "`rate` must be positive and finite. Received: rate=inf"),
        (within("[0, 1)", rate=1), "`rate` must be in [0, 1). Received: rate=1"),
        (within("(0, 1]", rate=0), "`rate` must be in (0, 1]. Received: rate=0"),
        (within("[0, 1]", rate=NAN), "`rate` must be in [0, 1]. Received: rate=nan"),
        (within("[0, inf)", rate=math.inf), "`rate` must be in [0, inf). Received: rate=inf"),
        (one_of(("a", "b"), kind="c"), "`kind` must be one of a, b. Received: kind='c'"),
        (one_of((None, "a"), kind=""), "`kind` must be one of a. Received: kind=''"),
        (one_of(("a", "b"), kind=None), "`kind` must be one of a, b. Received: kind=None"),
        (same_number("lines", a=[1], b=[]), "`a` and `b` must have the same number of lines. Received: 1 and 0"),
        (
            same_number("lines", smallest=1, a=[], b=[]),
            "`a` and `b` must have the same number of lines, at least 1. Received: 0 and 0",
        ),
    ],
)
def test_a_problem_names_the_argument_and_its_value(problems, message):
    assert [*problems] == [message]


@pytest.mark.parametrize(
    "problems",
    [
        at_least(1, size=1, other=None),
        counts(0, size=0),
        positive(rate=1e-9, other=None),
        within("[0, 1)", low=0, high=0.999, other=None),
        within("(0, 1]", high=1),
        within("(-inf, inf)", value=-1e300),
        one_of((None, "a"), kind=None, other="a"),
        same_number("lines", a=[1], b=[2]),
    ],
)
def test_values_in_range_and_values_not_given_are_no_problems(problems):
    assert [*problems] == []


def test_all_problems_are_raised_at_once():
    require([], [])
    with pytest.raises(ValueError) as error:
        require(at_least(1, a=0, b=1), ["c"], of="Options")
    assert str(error.value) == "Options:\n- `a` must be at least 1. Received: a=0\n- c"
    with pytest.raises(ValueError) as error:
        require(["c"])
    assert str(error.value) == "c"


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "lingua", None)
    with (
        pytest.raises(ValueError, match=r"^lingua is not installed: pip install 'keras-transformer-kit\[clean\]'$"),
        needs("clean"),
    ):
        import lingua  # noqa: F401


def test_fields_are_the_named_values_of_a_configuration():
    assert fields(math, "pi", "e") == {"pi": math.pi, "e": math.e}
