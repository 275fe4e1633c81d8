"""The verdicts on the pairs of `pairs.tsv`, English and 25 other languages: `kept`, or the filter that removes them."""

import collections
import csv
from pathlib import Path

from keras_transformer.training.cleaning.clean import Cleaner, _Examiner
from keras_transformer.training.cleaning.config import CleaningConfig
from keras_transformer.training.cleaning.rules import Typical


def test_each_pair_gets_its_verdict():
    with open(Path(__file__).with_name("pairs.tsv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    corpora = collections.defaultdict(list)
    for row in rows:
        corpora[row["languages"]].append(row)
    wrong = []
    for corpus in corpora.values():
        good = [(row["source"], row["target"]) for row in corpus if row["verdict"] == "kept"]
        chunk = _Examiner(CleaningConfig(), Typical.of(good), None)([(row["source"], row["target"]) for row in corpus])
        Cleaner(CleaningConfig(), (None, None))._remove_duplicates(chunk)
        for row, reason in zip(corpus, chunk.reasons, strict=True):
            if row["verdict"] != (reason or "kept"):
                wrong.append({**row, "found": reason})
    assert len(rows) > 200 and not wrong
