import json

import pytest

from keras_transformer.apps.distillation.selection import choose_among


@pytest.mark.parametrize(
    ("select", "texts", "reference", "best"),
    [
        ("score", ["eins", "zwei"], None, 0),
        ("score", ["", "zwei"], None, 1),
        ("chrf", ["eins", "zwei", "zwei"], "zwei", 1),
        ("chrf", ["", "xyz", "abc"], "zwei", 1),
        ("bleu", [" ", "eins"], "zwei", 1),
        ("bleu", ["", ""], "zwei", 0),
    ],
)
def test_an_empty_hypothesis_wins_no_tie(select, texts, reference, best):
    line = json.dumps({"translations": [{"text": text, "score": -i} for i, text in enumerate(texts)]})
    assert choose_among(select, [line], [reference] if reference else []) == [(best, -best)]
