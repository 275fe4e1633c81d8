import pytest
import sacrebleu

from keras_transformer.evaluation.scores import BLEU_TOKENIZERS, corpus_scores, evaluate
from keras_transformer.translate.translation import Translation

TRANSLATIONS = ["the cat sat on the mat", "two men are outside .", "Ein Haus"]
REFERENCES = ["the cat sat on a mat", "two men are outside .", "ein Haus"]


class Scripted:
    """A translator that knows its answers."""

    def translate(self, lines, batch_size, batch_tokens, progress):
        self.asked = (list(lines), batch_size, batch_tokens)
        return [Translation(text, 0.0) for text in TRANSLATIONS]


def test_scores_are_sacrebleus_own():
    scores = corpus_scores(TRANSLATIONS, REFERENCES)
    bleu, chrf = sacrebleu.metrics.BLEU(), sacrebleu.metrics.CHRF()
    assert 0 < scores.bleu < 100
    assert scores.bleu == bleu.corpus_score(TRANSLATIONS, [REFERENCES]).score
    assert scores.chrf == chrf.corpus_score(TRANSLATIONS, [REFERENCES]).score
    assert scores.bleu_signature == str(bleu.get_signature())
    assert scores.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert scores.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")
    assert (scores.exact_match, scores.sentences) == (1 / 3, 3)


def test_text_that_is_tokenised_already():
    none, default = (corpus_scores(["the cat sat down ."], ["the cat sat down."], name) for name in ("none", "13a"))
    assert none.bleu < default.bleu == pytest.approx(100) and "tok:none" in none.bleu_signature


def test_every_tokenizer_works_here():
    assert all(corpus_scores(REFERENCES, REFERENCES, name).bleu > 99 for name in BLEU_TOKENIZERS)


def test_translations_and_references_are_not_mixed_up():
    short, long = ["the cat"], ["the cat sat on the mat today"]
    assert (
        corpus_scores(short, long).bleu == sacrebleu.corpus_bleu(short, [long]).score != corpus_scores(long, short).bleu
    )


def test_text_holds_scores_and_signatures():
    scores = corpus_scores(TRANSLATIONS, REFERENCES)
    assert str(scores).splitlines() == [
        f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}",
        f"chrF {scores.chrf:.2f}  {scores.chrf_signature}",
        "exact match 0.3333 of 3 lines",
    ]


def test_bleu_of_lines_that_are_too_short_is_not_shown():
    words = ["eins", "zwei drei vier", "fünf"]
    scores = corpus_scores(words, words[:2] + ["sechs"])
    assert not scores.has_4_grams and scores.bleu < 5
    assert str(scores).splitlines() == [
        f"chrF {scores.chrf:.2f}  {scores.chrf_signature}",
        "exact match 0.6667 of 3 lines",
        "BLEU is undefined: the lines are too short for sequences of 4 words",
    ]
    long = ["one two three four"]
    assert [corpus_scores(*pair).has_4_grams for pair in ((long, long), (long, ["one"]), (["one"], long))] == [
        True,
        False,
        False,
    ]
    assert corpus_scores(["eins zwei drei vier"], ["eins zwei drei vier"], "char").has_4_grams


def test_evaluate_translates_and_scores():
    translator = Scripted()
    assert evaluate(translator, ["a", "b", "c"], REFERENCES, 2, 99) == corpus_scores(TRANSLATIONS, REFERENCES)
    assert translator.asked == (["a", "b", "c"], 2, 99)


@pytest.mark.parametrize(("translations", "references"), [(["a"], []), (["a"], ["a", "b"]), ([], [])])
def test_misaligned_texts_are_refused(translations, references):
    counts = f"Received: {len(translations)} and {len(references)}"
    with pytest.raises(ValueError, match=f"`translations` and `references`.*{counts}"):
        corpus_scores(translations, references)


def test_an_unknown_tokenizer_is_found_before_translating():
    with pytest.raises(ValueError, match="`bleu_tokenize`.*13a, none, .*Received: bleu_tokenize='moses'"):
        evaluate(None, REFERENCES, REFERENCES, bleu_tokenize="moses")


def test_misaligned_source_is_found_before_translating():
    with pytest.raises(ValueError, match="`source` and `reference`.*Received: 2 and 3"):
        evaluate(None, ["a", "b"], REFERENCES)
