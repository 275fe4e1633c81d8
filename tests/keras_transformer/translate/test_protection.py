import re

import numpy as np
import pytest

from keras_transformer.apps.html.html_text import HtmlText
from keras_transformer.storage.source_text import SourceText
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece
from keras_transformer.translate.protected_sentence import ProtectedSentence
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.splitting_translator import SplittingTranslator
from keras_transformer.translate.token_translator import TokenTranslator

WORDS = {"I": "ich", "love": "liebe", "dogs": "hunde", "two": "zwei", "men": "männer", "run": "rennen", "now": "jetzt"}
LINES = ["I love dogs.", "two men run now, 1 2 3!", "ich liebe hunde.", "zwei männer rennen jetzt?", "5 (a) b"]


class Words(TokenTranslator):
    """Translates word by word and moves "now" to the front. The attention is the true correspondence."""

    max_n_best = 2

    def __init__(self, protect="auto", source_text=None):
        tokenizer = Tokenizer(train_sentencepiece(LINES * 9, TokenizerConfig(vocab_size=340)))
        super().__init__(tokenizer, tokenizer, protect=protect, source_text=source_text)
        self.seen = []

    def search(self, source, n_best=None):
        rows = []
        for line in self.source_tokenizer.decode(source):
            self.seen.append(line)
            words = [WORDS.get(word, word) for word in re.findall(r"\w+|[^\w\s]|\s+", line)]
            text = "".join(words)
            others = " ".join(reversed(text.split()))
            rows.append([self.target_tokenizer.encode([text])[0], self.target_tokenizer.encode([others])[0]])
        length = max(len(row) for pair in rows for row in pair)
        tokens = np.array([[row + [0] * (length - len(row)) for row in pair] for pair in rows], "int32")
        return tokens, np.tile(np.float32([-1, -2]), (len(source), 1))

    def mean_attention(self, source, target):
        weights = np.full((len(source), target.shape[1], source.shape[1]), 0.01, "float32")
        for rows, line, translation in zip(weights, source, target, strict=True):
            (text,), (written,) = self.source_tokenizer.decode([line]), self.target_tokenizer.decode([translation])
            spans = self.source_tokenizer.encoded_spans([text])[0], self.target_tokenizer.decoded_spans(translation)
            for j, (begin, end) in enumerate(spans[0]):
                for i, (left, right) in enumerate(spans[1]):
                    word, other = _word(text, begin, end), _word(written, left, right)
                    rows[i, j] = float(WORDS.get(word, word) == other) or 0.01
        return weights


def _word(text, begin, end):
    """The word or sign that contains a part."""
    middle = (begin + end) // 2 if text[begin : begin + 1] != " " else max(begin + 1, (begin + end) // 2)
    return next((m[0] for m in re.finditer(r"\w+|[^\w\s]", text) if m.start() <= middle < m.end()), "")


@pytest.fixture(scope="module")
def words():
    return Words()


@pytest.mark.parametrize(
    "line",
    ["102", "12:30", "$ 49.90", "-", "...", "!!!", "♪", "😀😀", "https://keras.io/", "a@b.org", "00:01,2 --> 00:02,3"],
)
def test_lines_without_language_come_back(words, line):
    words.seen.clear()
    found = words.translate([line, f" {line}"])
    assert [(one.text, one.score, one.tokens) for one in found] == [(line, 0.0, ()), (f" {line}", 0.0, ())]
    assert [one.text for one in words.translate([line], n_best=2)[0].hypotheses] == [line]
    assert words.seen == []


@pytest.mark.parametrize(
    ("source", "target", "seen"),
    [
        ("I love dogs 🐶.", "ich liebe hunde 🐶.", "I love dogs."),
        ("I love dogs🐶!", "ich liebe hunde🐶!", "I love dogs!"),
        ("I {verb} love %(count)d dogs", "ich {verb} liebe %(count)d hunde", "I love dogs"),
        ("I {user_name}, now run", "ich {user_name}, jetzt rennen", "I, now run"),
        ("<i>two men run.</i><br />I love dogs.", "<i>zwei männer rennen.</i><br />ich liebe hunde.", None),
        ("two <b>men</b> run", "zwei <b>männer</b> rennen", "two men run"),
        ("I love #<span>dogs</span>", "ich liebe #<span>hunde</span>", "I love dogs"),
        ("{\\an8}two men", "{\\an8}zwei männer", "two men"),
        ("men 🐶👍🏽 run ✈️ now", "männer 🐶👍🏽 rennen ✈️ jetzt", "men run now"),
        ("two men https://a.org/b.", "zwei männer https://a.org/b.", "two men."),
        ("@john, two men run", "@john, zwei männer rennen", "two men run"),
        ("men run :blobcat:", "männer rennen :blobcat:", "men run"),
        ("men £5 run", "männer £5 rennen", "men 5 run"),
        ("**two men** run", "**zwei männer** rennen", "two men run"),
        ("men — dogs — run", "männer — hunde — rennen", "men dogs run"),
        ("men—dogs", "männer—hunde", "men dogs"),
        ('men "%s" run', 'männer "%s" rennen', "men run"),
        ("men ({a}) run", "männer ({a}) rennen", "men run"),
        ("men Übel run", "männer Übel rennen", "men run"),
        ("men {n}th run", "männer {n}th rennen", "men run"),
        ("  two men", "zwei männer", "two men"),
        ("1. two men", "1. zwei männer", "two men"),
        ("- [x] two {a} men", "- [x] zwei {a} männer", "two men"),
        ("| two men | 12:30 | dogs |", "| zwei männer | 12:30 | hunde |", None),
        ("Привет", "Привет", None),
        ("two men", "zwei männer", "two men"),
    ],
)
def test_parts_come_back(words, source, target, seen):
    words.seen.clear()
    translator = Words(source_text=SourceText("en")) if source.startswith("1.") else words
    (found,) = translator.translate([source], n_best=2)
    assert found.text == target
    assert seen is None or [*translator.seen] == [seen]
    for one in found.hypotheses:
        assert [source[slice(*place)] for place, _ in one.kept] == [one.text[slice(*place)] for _, place in one.kept]
        assert re.sub(r"\W", "", "".join(sorted(one.text))) == re.sub(r"\W", "", "".join(sorted(target)))


def test_each_part_comes_back_once_in_every_hypothesis(words):
    parts, rng = ["🐶", "{a}", "<b>", "%s", "https://a.org", "—", ":x:", "&amp;", "@a", "#t"], np.random.default_rng(1)
    for _ in range(100):
        sentence = [*rng.permutation([*WORDS])[:4]]
        chosen = [*rng.choice(parts, 3, replace=False)]
        for part in chosen:
            sentence.insert(rng.integers(len(sentence) + 1), part)
        (found,) = words.translate([" ".join(sentence)], n_best=2)
        for one in found.hypotheses:
            assert sorted(one.text.split()) == sorted(WORDS.get(word, word) for word in sentence)


def test_invisible_characters_do_not_divide_a_word():
    sentence = ProtectedSentence("two wo\u00admen run", [(6, 7)])
    assert sentence.text == "two women run"


def test_protect_chooses_what_is_kept():
    line = "two {a} dogs run"
    off = Words("off")
    off.translate([line, "12:30", "1. men"])
    assert sorted(off.seen) == ["1. men", "12:30", line]
    assert Words("dogs").translate([line])[0].text == "zwei {a} dogs rennen"
    with pytest.raises(ValueError, match=r"`protect` must be .* a regular expression. Received: protect='\('"):
        Words("(")


@pytest.mark.parametrize(
    ("untranslatable", "changed", "is_made_for_it"), [(19, 19, False), (20, 9, False), (20, 10, True)]
)
def test_a_model_that_was_made_for_numbers_translates_them(untranslatable, changed, is_made_for_it):
    translator = Words(source_text=SourceText("en", None, untranslatable, changed))
    translator.translate(["1 2 3", "2. men"])
    assert sorted(translator.seen) == (["1 2 3", "men"] if is_made_for_it else ["men"])


def test_signs_that_only_the_target_has_are_not_known():
    translator = Words(source_text=SourceText("en", signs=" .,!()"))
    assert translator.translate(["men? run"])[0].text == "männer? rennen"
    assert translator.seen == ["men run"]


def test_kept_parts_are_aligned_with_themselves(words):
    line = "I {a} love dogs."
    (translation,) = words.translate([line])
    (alignment,) = words.align([line], [translation])
    pairs = {
        (line[slice(*alignment.source[j])].strip(), translation.text[slice(*alignment.target[i])].strip())
        for i, j in zip(*np.nonzero(alignment.weights > 0.4), strict=True)
    }
    assert ("{a}", "{a}") in pairs and ("I", "ich") in pairs and (".", ".") in pairs
    assert len(alignment.target) == len(alignment.weights) and len(alignment.source) == alignment.weights.shape[1]


def test_html_with_kept_parts_keeps_its_tags(words):
    page = HtmlText("<p>I <b>love {a}</b> dogs with <code>{user}</code>.</p>", SentenceSplitter("en"))
    found = words.translate(page.sentences)
    html = page.join([one.text for one in found], words.align(page.sentences, found))
    assert html == "<p>ich <b>liebe {a}</b> hunde with <code>{user}</code>.</p>"


def test_sentences_with_kept_parts_are_split(words):
    splitting = SplittingTranslator(words, "en")
    assert splitting.translate(["1. two men {a. B} run. 12:30."])[0].text == "1. zwei männer {a. B} rennen. 12:30."


def test_the_source_text_is_recorded():
    found = SourceText.of_pairs(["1", "two — x", " ", "12:30"], ["one", "zwei", "", "12:30"])
    assert found == SourceText(None, " :—", 2, 1)
    assert SourceText.from_record({"source_text": found.to_record(), "languages": ["en", "de"]}) == SourceText(
        "en", " :—", 2, 1
    )
    assert found + found == SourceText(None, " :—", 4, 2) and SourceText.from_record({}) == SourceText()
    assert Protection("auto", found).split("two — x") is None and Protection().split("two men") is None
