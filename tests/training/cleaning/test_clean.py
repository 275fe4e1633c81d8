import dataclasses
import warnings

import numpy as np
import pytest

from keras_transformer.evaluation.scorer import PairScore
from keras_transformer.training.cleaning import clean, scores
from keras_transformer.training.cleaning.clean import Cleaner, cleaned
from keras_transformer.training.cleaning.config import CleaningConfig
from keras_transformer.training.cleaning.duplicates import SeenHashes, hash_of
from keras_transformer.training.cleaning.identification import LanguageRule
from keras_transformer.training.cleaning.scores import ScoreFilter
from keras_transformer.training.datasets import Corpus, Pairs

PAIRS = [
    ("A man sleeps.", "Ein Mann schläft."),
    ("A man sleeps.", "Ein Mann schläft."),
    ("a man sleeps", "ein mann schläft"),
    ("A man sleeps.", "Ein Mann ruht."),
    ("", "Leer."),
    ("Two cats.", "Zwei KÃ¤tzchen &amp; mehr."),
    ("The\tsame", "the same"),
    ("A man is here.", "Ein Mann ruht."),
]
KEPT = [PAIRS[0], PAIRS[3], ("Two cats.", "Zwei Kätzchen & mehr."), PAIRS[7]]


def corpus_of(pairs):
    return Corpus(Pairs(lambda: iter(pairs), len(pairs)), Pairs(lambda: iter(pairs), len(pairs)), ("en", "de"))


def run(folder, pairs=PAIRS, **options):
    with cleaned(corpus_of(pairs), CleaningConfig(**options), folder) as (corpus, counts):
        found = list(corpus.train), list(corpus.train)
        assert found[0] == found[1] and corpus.train.count == len(found[0])
        assert list(corpus.validation) == pairs
    return found[0], dict(counts["train"])


@pytest.mark.parametrize("chunk", [1, 3, 5_000])
def test_pairs_are_kept_repaired_and_counted(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(clean, "_CHUNK", chunk)
    found, counts = run(tmp_path, rejected=str(tmp_path / "rejected.tsv"))
    assert found == KEPT
    assert counts == {"kept": 4, "duplicate": 2, "empty": 1, "copy": 1, "repaired": 1}
    assert (tmp_path / "rejected.tsv").read_text() == (
        "duplicate\ttrain\tA man sleeps.\tEin Mann schläft.\nduplicate\ttrain\ta man sleeps\tein mann schläft\n"
        "empty\ttrain\t\tLeer.\ncopy\ttrain\tThe same\tthe same\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["rejected.tsv"]


def test_a_rejected_pair_is_one_row_of_four_columns(tmp_path):
    """Without `repair`, the text keeps its line breaks until then."""
    pairs = [*PAIRS[:1], ("The\rsame\x0b\x85\t", "the\u2028same\x0c\r")]
    run(tmp_path, pairs, rejected=str(tmp_path / "rejected.tsv"), repair=False)
    with open(tmp_path / "rejected.tsv", encoding="utf-8", newline="") as file:
        assert [row.split("\t") for row in file.read().splitlines()] == [["copy", "train", "The same   ", "the same "]]


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({"duplicates": "exact"}, [0, 2, 3, 7]),
        ({"duplicates": "none"}, [0, 1, 2, 3, 7]),
        ({"duplicate_sources": "exact"}, [0, 7]),
        ({"duplicate_targets": "near"}, [0, 3]),
    ],
)
def test_each_kind_of_duplicates_is_removed(tmp_path, options, places):
    found, _ = run(tmp_path, [pair for i, pair in enumerate(PAIRS) if i != 5], **options)
    assert found == [PAIRS[i] for i in places]


def test_without_repair_the_text_is_unchanged(tmp_path):
    found, counts = run(tmp_path, PAIRS[5:6], repair=False)
    assert found == PAIRS[5:6] and counts == {"kept": 1, "repaired": 0}


def test_repair_keeps_quotation_marks_and_other_characters(tmp_path):
    pair = ("“Quoted” ﬁsh – Ｗide…", "„Zitat“ ‚so‘ – ﬁ")
    assert run(tmp_path, [pair])[0] == [pair]


def test_each_of_several_corpora_is_cleaned(tmp_path):
    parts = {"clean": corpus_of(PAIRS[:4]).train, "web": corpus_of(PAIRS[2:]).train}
    corpus = dataclasses.replace(corpus_of(PAIRS), parts=parts)
    rejected = tmp_path / "rejected.tsv"
    with cleaned(corpus, CleaningConfig(rejected=str(rejected)), tmp_path) as (found, counts):
        # Duplicates are found across the corpora.
        assert {split: list(pairs) for split, pairs in found.splits.items()} == {
            "train.clean": KEPT[:2],
            "train.web": KEPT[2:],
        }
        assert list(found.train) == KEPT and found.train.count == 4
    rows = [line.split("\t")[:2] for line in rejected.read_text().splitlines()]
    assert rows.count(["duplicate", "train.clean"]) == rows.count(["duplicate", "train.web"]) == 2
    assert counts["train.web"]["duplicate"] == 2 and counts["train.clean"]["duplicate"] == 2


def test_all_corpora_that_the_filters_leave_empty_are_named(tmp_path):
    parts = {"a": corpus_of(PAIRS[6:7]).train, "b": corpus_of(PAIRS[:1]).train, "c": corpus_of(PAIRS[4:5]).train}
    with (
        pytest.raises(ValueError, match=r"train\.a: 0 of 1 .*copy 1.*train\.c: 0 of 1 .*empty 1"),
        cleaned(dataclasses.replace(corpus_of(PAIRS), parts=parts), CleaningConfig(), tmp_path),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_filters_that_remove_everything_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"at least one pair.*0 of 1 pair kept.*copy 1"):
        run(tmp_path, PAIRS[6:7], rejected=str(tmp_path / "rejected.tsv"))
    assert [path.name for path in tmp_path.iterdir()] == ["rejected.tsv"]  # It shows what to change.


@pytest.mark.slow
def test_pairs_in_other_languages_are_removed(tmp_path):
    rule = LanguageRule("en", "de")
    assert rule("The weather is nice today.", "Das Wetter ist heute schön.")
    assert not rule("Das Wetter ist heute schön.", "The weather is nice today.")
    assert not rule("The weather is nice today.", "Le temps est vraiment magnifique aujourd'hui.")
    assert rule("12 %", "12 %")
    pairs = [
        ("The weather is nice today.", "Das Wetter ist heute schön."),
        ("Hier ist es schön warm.", "It is warm here."),
    ]
    found, counts = run(tmp_path, pairs, languages=True)
    assert found == pairs[:1] and counts["language"] == 1


@pytest.fixture
def scorers(monkeypatch):
    """Replaces models. `ziel 7 1 3` has the cross-entropy 1 per token, given `source 7 …`, and 3, given other text."""

    class FakeScorer:
        def __init__(self, path):
            self.words = ("source", "ziel") if path == "forward" else ("ziel", "source")

        def score(self, source, target):
            warnings.warn("line 1 has more than 512 subwords", stacklevel=2)  # The cleaning does not show it.
            return [self.score_pair(*lines) for lines in zip(source, target, strict=True)]

        def score_pair(self, source, target):
            assert source.split()[:1] in ([], [self.words[0]])
            word, number, right, wrong = target.split()
            assert word == self.words[1]
            return PairScore(-3 * float(right if source.split()[1:2] == [number] else wrong), 3)

    monkeypatch.setattr(scores, "LikelihoodScorer", FakeScorer)


@pytest.mark.parametrize(
    ("reverse", "least", "kept"),
    [
        (None, 0.5, [0, 1]),
        (None, 2.0, [0]),
        ("backward", 1.5, [0]),
        ("backward", 2.5, []),
        ("backward", 0.0, [0, 1, 2]),
    ],
)
def test_pairs_with_low_scores_are_removed(scorers, reverse, least, kept):
    """The scores are 7 and 2, 1 and 1, 0 and 0. A pair that another filter removes has none."""
    pairs = [("source 1 1 3", "ziel 1 2 9"), ("source 2 0 1", "ziel 2 0 1"), ("source 3 0 5", "ziel 4 0 5")]
    options = {"model": "forward", "reverse_model": reverse, "min_score": least, "numbers": False, "min_letters": 0}
    cleaner = Cleaner(CleaningConfig(**options), ("en", "de"))
    (chunk,) = cleaner.examine(Pairs(lambda: iter([*pairs, ("", "")]), 4))
    assert chunk.reasons == [*(None if i in kept else "score" for i in range(3)), "empty"]


def test_a_pair_alone_has_a_score(scorers):
    score_filter = ScoreFilter(CleaningConfig(model="forward", min_score=1.0), [])
    assert score_filter.removes([("source 1 0 0", "ziel 1 0 2")]).tolist() == [False]
    assert score_filter.removes([("source 1 0 0", "ziel 2 0 2")]).tolist() == [True]


def test_the_default_of_the_least_score_is_that_of_most_validation_pairs(scorers, tmp_path, capsys):
    """The scores of the validation pairs are 1 to 101. 2% of the pairs have less than 3."""
    validation = [(f"source {i} 0 0", f"ziel {i} 0 {i}") for i in range(1, 102)] + [("source 0 0 0", " ")]
    pairs = [(f"source {i} 0 0", f"ziel {i} 0 {score}") for i, score in enumerate((2, 3, 4))]
    corpus = dataclasses.replace(corpus_of(pairs), validation=Pairs(lambda: iter(validation), 102))
    with cleaned(corpus, CleaningConfig(model="forward", numbers=False, min_letters=0), tmp_path) as (found, _):
        assert list(found.train) == pairs[1:]
    assert "cleaning.min_score: 3, from 101 validation pairs" in capsys.readouterr().err


def test_few_validation_pairs_are_used(scorers, monkeypatch, capsys):
    monkeypatch.setattr(scores, "_MOST_VALIDATION", 2)
    validation = [(f"source {i} 0 0", f"ziel {i} 0 {i}") for i in (3, 2, 1)]
    assert ScoreFilter(CleaningConfig(model="forward"), validation).min_score == 2.0
    assert "from 2 validation pairs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"), [("", "no validation pairs"), ("source 1 0 0", "must be given: .* scores of nan")]
)
def test_a_least_score_must_be_given_if_none_can_be_found(scorers, line, message):
    with pytest.raises(ValueError, match=rf"`cleaning.min_score` .*{message}"):
        ScoreFilter(CleaningConfig(model="forward"), [(line, "ziel 1 nan 0")])


def test_the_usual_ratio_is_that_of_repaired_text():
    """Chinese that was read as Latin-1 has three times as many characters."""
    chinese = "两个男人在雨中站在公园里，"
    pairs = [(f"{number} two men are outside in the rain in the park", chinese) for number in range(3)]
    broken = [(source, target.encode().decode("latin-1")) for source, target in pairs]
    cleaner = Cleaner(CleaningConfig(numbers=False), ("en", "zh"))
    (chunk,) = cleaner.examine(Pairs(lambda: iter([*broken, (f"7 {pairs[0][0]}", 4 * chinese)]), 4))
    assert chunk.pairs[:3] == pairs and chunk.reasons == [None, None, None, "length_ratio"]


def test_no_scores_are_needed_if_nothing_is_left(scorers):
    cleaner = Cleaner(CleaningConfig(model="forward", min_score=0.5), ("en", "de"))
    (chunk,) = cleaner.examine(Pairs(lambda: iter([("", "")]), 1))
    assert chunk.reasons == ["empty"]


@pytest.mark.parametrize("languages", [("en", None), ("en", "en-US"), ("en", "xx"), ("no", "nn"), ("en", "sr-Latn")])
def test_languages_must_be_known(languages):
    with pytest.raises(ValueError, match="`source_language`.* lingua knows: af, ar, .* nb, nl, nn, no, .* Received: "):
        Cleaner(CleaningConfig(languages=True), languages)


@pytest.mark.parametrize("code", ["no", "nb", "NB", "nob", "no_NO"])
def test_norwegian_is_recognized_by_each_of_its_codes(code):
    rule = LanguageRule("en", code)
    assert rule("I do not know what she is called.", "Jeg vet ikke hva hun heter.")
    assert not rule("I do not know what she is called.", "I do not know what she is called.")


@pytest.mark.parametrize("similarity", ["exact", "near"])
def test_hashes_tell_texts_apart(similarity):
    assert hash_of(similarity, "a b", "c") != hash_of(similarity, "a", "b c")
    assert hash_of(similarity, "...") != hash_of(similarity, "!")
    assert (hash_of(similarity, "A b") == hash_of(similarity, "a B.")) is (similarity == "near")


def test_seen_hashes_are_a_set():
    rng = np.random.default_rng(1)
    seen, expected = SeenHashes(), set()
    for size in (5, 0, 300, 10, 10, 2000, 1):
        hashes = rng.integers(0, 1500, size).astype("uint64")
        found = seen.add(hashes)
        for value, is_seen in zip(hashes.tolist(), found.tolist(), strict=True):
            assert is_seen is (value in expected)
            expected.add(value)
    assert len(seen._arrays) < 5
