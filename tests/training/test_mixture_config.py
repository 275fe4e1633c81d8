import math

import pytest

from keras_transformer.training.mixture_config import (
    CorpusConfig,
    StageConfig,
    problems_of_corpora,
    problems_of_stages,
)

FILES = {"source": "a.en", "target": "a.de"}


@pytest.mark.parametrize(
    ("corpora", "problem"),
    [
        ({"a": FILES, "b": {"dataset": "x/en_de", "tag": "<bt>"}}, None),
        ({"a": {**FILES, "weight": 2}, "b": {**FILES, "weight": 0.5}}, None),
        ({"a/b": FILES}, "a/b: a name must"),
        ({"a": {}}, "a must have either"),
        ({"a": {**FILES, "dataset": "x"}}, "a must have either"),
        ({"a": {"source": "a.en"}}, "a must have either"),
        ({"a": {**FILES, "source": ["a.en", "b.en"]}}, r"same number of files, not [2, 1]"),
        ({"a": {**FILES, "tag": "<0x41>"}}, "not '<0x41>'"),
        ({"a": {**FILES, "weight": 0}}, "a.weight must be positive, not 0"),
        ({"a": {**FILES, "weight": float("inf")}}, "a.weight must be positive, not inf"),
        ({"a": {**FILES, "tag": "bt"}}, "a.tag must be a symbol like <bt>, not 'bt'"),
        ({"a": {**FILES, "tag": "<b t>"}}, "not '<b t>'"),
        ({"a": {**FILES, "tag": "<s>"}}, "not '<s>'"),
        ({"a": {**FILES, "weight": 1}, "b": FILES}, "either all corpora must have a `weight`"),
    ],
)
def test_problems_of_corpora_are_named(corpora, problem):
    found = problems_of_corpora({name: CorpusConfig(**options) for name, options in corpora.items()})
    assert len(found) == (problem is not None) and all(problem in one for one in found)


@pytest.mark.parametrize(
    ("stages", "problem"),
    [
        ([{"weights": {"a": 0.6, "b": 0.4}, "epochs": 2, "of": "a"}, {"weights": {"b": 1}}], None),
        ([{"weights": {"a": 1}, "epochs": 0.5}, {"weights": {"b": 1}}], None),
        ([{"weights": {}}], "stage 1 must have `weights`"),
        ([{"weights": {"c": 1}}], "stage 1: there is no corpus 'c'"),
        ([{"weights": {"a": -1}}], "stage 1: the weight of a must be positive, not -1"),
        ([{"weights": {"a": 1}}, {"weights": {"b": 1}}], "stage 1 never ends: it must have `epochs`"),
        ([{"weights": {"a": 1}, "epochs": 1, "of": "b"}, {"weights": {"b": 1}}], "stage 1 never ends: `of`"),
        ([{"weights": {"a": 1, "b": 1}, "epochs": 1}, {"weights": {"b": 1}}], "stage 1 never ends: `of`"),
        ([{"weights": {"a": 1}, "epochs": 0}, {"weights": {"b": 1}}], "`epochs` must be positive and finite, not 0"),
        ([{"weights": {"a": 1}, "epochs": math.inf}, {"weights": {"b": 1}}], "finite, not inf"),
        ([{"weights": {"a": 1}, "epochs": 1}], "stage 1 is the last one"),
    ],
)
def test_problems_of_stages_are_named(stages, problem):
    found = problems_of_stages([StageConfig(**stage) for stage in stages], ["a", "b"])
    assert len(found) == (problem is not None) and all(problem in one for one in found)


def test_corpora_that_are_unknown_may_have_any_name():
    assert problems_of_stages([StageConfig(weights={"c": 1})], None) == []
