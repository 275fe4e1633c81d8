import pytest
from sacrebleu import corpus_bleu

from keras_transformer.evaluation.comparison import compare

REFERENCE = [" ".join(f"w{i + j}" for j in range(3 + i % 30)) for i in range(60)]
SOURCE = [f"line {i}" for i in range(60)]
#: Every third line lacks its last word.
SHORTER = [line.rsplit(" ", 1)[0] if i % 3 == 0 else line for i, line in enumerate(REFERENCE)]
#: One line is wrong.
ONE_WRONG = ["nothing", *REFERENCE[1:]]


def run(one, other, **options):
    return compare(("one", "other"), (one, other), SOURCE, REFERENCE, **options)


def test_scores_and_their_significance_are_compared():
    found = run(SHORTER, REFERENCE)
    bleu, chrf, ter = found.metrics
    assert [metric.name for metric in found.metrics] == ["BLEU", "chrF2", "TER"]
    assert bleu.scores == (pytest.approx(corpus_bleu(SHORTER, [REFERENCE]).score), pytest.approx(100.0))
    assert bleu.difference == bleu.scores[1] - bleu.scores[0] > 0 > ter.difference
    assert all(metric.p_value < 0.01 for metric in found.metrics)
    assert bleu.intervals[0] > 0 and "seed:12345" in bleu.signature
    assert found.lines == 60 and found.equal == 40


def test_a_small_difference_is_not_significant():
    found = run(REFERENCE, ONE_WRONG)
    assert found.metrics[0].difference < 0 and found.metrics[0].p_value > 0.05
    assert "not significant" in str(found)


def test_bleu_is_given_by_length():
    groups = run(SHORTER, REFERENCE).lengths
    assert [(group.shortest, group.longest, group.lines) for group in groups] == [
        *((0, 5, 6), (6, 10, 10), (11, 15, 10), (16, 20, 10)),
        *((21, 30, 20), (31, 50, 4)),
    ]
    assert all(group.bleu[0] < group.bleu[1] for group in groups[:5])
    assert groups[5].bleu[0] == pytest.approx(100.0)  # None of these lines is shortened.


def test_bleu_of_short_lines_is_undefined():
    """Groups of such lines are left out, and so is BLEU if all lines are short."""
    short = [" ".join(line.split()[:3]) for line in REFERENCE]
    found = compare(("one", "other"), (short, short[::-1]), SOURCE, short)
    assert [metric.name for metric in found.metrics] == ["chrF2", "TER"] and not found.lengths
    assert "BLEU is undefined" in str(found)
    some = [first if len(line.split()) <= 5 else line for first, line in zip(short, REFERENCE, strict=True)]
    found = compare(("one", "other"), (some, some), SOURCE, some)
    assert found.metrics[0].name == "BLEU" and found.lengths[0].shortest == 6


def test_the_lines_that_differ_most():
    found = run(SHORTER, ONE_WRONG, num_differences=3)
    assert [line.number for line in found.worse] == [1] and len(found.better) == 3
    (worst,) = found.worse
    assert (worst.source, worst.reference, worst.translations) == (SOURCE[0], REFERENCE[0], (SHORTER[0], "nothing"))
    assert all(line.chrf[1] > line.chrf[0] and line.translations[1] == line.reference for line in found.better)
    assert "2 is worse" in str(found) and "line 1\n" in str(found)


def test_equal_translations():
    found = run(SHORTER, SHORTER)
    assert found.equal == 60 and not found.worse and not found.better
    assert [metric.difference for metric in found.metrics] == [0, 0, 0]
    assert [metric.p_value for metric in found.metrics] == [1, 1, 1]
    assert str(found).count("not significant") == str(found).count("significant") == 3


@pytest.mark.parametrize(
    ("options", "message"), [({"bleu_tokenize": "13b"}, "bleu_tokenize='13b'"), ({}, "other must have 60.*59")]
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        run(REFERENCE, REFERENCE if options else REFERENCE[1:], **options)
