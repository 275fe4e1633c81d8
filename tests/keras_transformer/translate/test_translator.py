import threading
import time
import warnings

import numpy as np
import pytest

from keras_transformer.text.lines import MAX_LENGTH
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece
from keras_transformer.translate.batching import pad
from keras_transformer.translate.splitting_translator import SplittingTranslator
from keras_transformer.translate.token_translator import TokenTranslator
from keras_transformer.translate.translation import Translation
from keras_transformer.translate.translator import Translator

WORDS = [f"{tens} {ones}" for tens in ("zwanzig", "dreißig", "vierzig") for ones in ("eins", "zwei", "drei", "vier")]


class Echo(TokenTranslator):
    """Answers each row with its own ids; the score is the row's number of subwords."""

    def __init__(self, tokenizer, parallel_batches=1):
        super().__init__(tokenizer, tokenizer, parallel_batches=parallel_batches, protect="off")
        self.batches = []

    def search(self, source, n_best=None):
        self.batches.append(source)
        return source[:, None], (source != 0).sum(axis=1)[:, None].astype("float32")


@pytest.fixture
def echo():
    return Echo(Tokenizer(train_sentencepiece(WORDS, TokenizerConfig(vocab_size=290))))


def test_lines_come_back_in_their_order(echo):
    lines = ["zwanzig drei vier eins", "vier", "dreißig zwei", "eins", "vierzig vierzig vierzig"]
    translations = echo.translate(lines, batch_size=2)
    assert [t.text for t in translations] == lines
    for line, translation in zip(lines, translations, strict=True):
        assert list(translation.tokens) == echo.source_tokenizer.encode([line])[0]
        assert translation.score == len(translation.tokens)


def test_batches_run_side_by_side(echo):
    meeting = threading.Barrier(3, timeout=30)

    class Meeting(Echo):
        def search(self, source, n_best=None):
            meeting.wait()  # Nobody gets on unless three are here.
            return super().search(source, n_best)

    translations = Meeting(echo.source_tokenizer, parallel_batches=3).translate(WORDS[:6], batch_size=1)
    assert translations == echo.translate(WORDS[:6])


def test_a_small_text_is_divided_among_the_parallel_batches(echo):
    translator = Echo(echo.source_tokenizer, parallel_batches=4)
    assert translator.translate([*WORDS[:7], ""]) == echo.translate([*WORDS[:7], ""])
    assert sorted(len(batch) for batch in translator.batches) == [1, 2, 2, 2]
    assert [len(batch) for batch in echo.batches] == [7]


def test_a_fault_ends_batches_side_by_side(echo):
    class Faulty(Echo):
        def search(self, source, n_best=None):
            self.batches.append(source)
            if len(self.batches) > 1:
                time.sleep(0.02)  # Like a search. Batches that have not started by then are cancelled.
            raise RuntimeError("no more")

    faulty = Faulty(echo.source_tokenizer, parallel_batches=2)
    with pytest.raises(RuntimeError, match="no more"):
        faulty.translate(WORDS * 50, batch_size=1)
    assert len(faulty.batches) < 300


def test_batches_hold_lines_of_like_length(echo):
    echo.translate(["zwanzig drei vier eins", "vier", "dreißig zwei drei drei", "eins"], batch_size=2)
    assert [batch.shape[0] for batch in echo.batches] == [2, 2]
    assert echo.batches[0].shape[1] > echo.batches[1].shape[1]
    assert all(batch.dtype == np.int32 for batch in echo.batches)


def test_batches_hold_so_many_tokens_at_most_padding_counted(echo):
    lines = ["vier", "vier drei", "vier drei zwei eins", "zwei", "vier drei zwei"]
    alone = echo.translate(lines)
    echo.batches.clear()
    assert echo.translate(lines, batch_tokens=12) == alone
    assert len(echo.batches) > 2
    assert all(batch.size <= 12 or len(batch) == 1 for batch in echo.batches)


def test_by_default_only_long_lines_are_split(echo):
    echo.translate(["vier drei"] * 32)
    assert [len(batch) for batch in echo.batches] == [32]
    echo.batches.clear()
    echo.translate(["漢" * 170] * 32)  # Of 3 bytes each: 512 subwords a line with the end.
    assert [batch.shape for batch in echo.batches] == [(8, 512)] * 4


def test_a_stream_is_taken_piece_by_piece(echo):
    taken = []
    numbers = [f"{a} {b}" for a in ("eins", "zwei", "drei") for b in WORDS] * 4
    lines = (taken.append(line) or line for line in numbers)
    stream = echo.translate_stream(lines, batch_size=1)
    assert taken == []
    assert next(stream).text == numbers[0]
    assert taken == numbers[:64]
    assert [translation.text for translation in stream] == numbers[1:] and len(numbers) > 128


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("text",), "`lines`.*list.*Received: 'text'"),
        ((["vier", 3],), "`lines`.*strings.*Received: 3"),
        ((["vier"], 0), "`batch_size`.*Received: batch_size=0"),
        ((["vier"], 1, 0), "`batch_tokens`.*Received: batch_tokens=0"),
    ],
)
def test_a_bad_stream_is_refused(echo, arguments, message):
    with pytest.raises(ValueError, match=message):
        list(echo.translate_stream(*arguments))


def test_any_iterable_of_lines_is_translated(echo):
    assert [t.text for t in echo.translate(line for line in ["vier", "drei"])] == ["vier", "drei"]
    assert echo.translate([]) == []


@pytest.mark.parametrize("empty", ["", " ", " \t  ", "\N{NO-BREAK SPACE}"])
def test_a_line_without_text_stays_empty(echo, empty):
    assert [t.text for t in echo.translate(["vier", empty, "drei"])] == ["vier", "", "drei"]
    assert echo.translate([empty]) == [Translation("", 0.0)]
    assert sum(len(batch) for batch in echo.batches) == 2


def test_an_emoji_goes_through(echo):
    line = "drei \N{GRINNING FACE}"
    assert echo.translate([line])[0].text == line


def test_a_lone_surrogate_becomes_a_question_mark(echo):
    assert echo.translate(["drei \ud800 vier"])[0].text == "drei ? vier"


def test_a_long_line_is_cut_with_a_warning(echo):
    long = " ".join(["zwanzig", "vier"] * 400)
    count = len(echo.source_tokenizer.encode([long])[0]) - 1
    assert count > MAX_LENGTH
    with pytest.warns(UserWarning, match=rf"line 2 .*\b{count} subwords.*\b{MAX_LENGTH}: zwanzig vier") as caught:
        translations = echo.translate(["vier", long])
    assert [warning.filename for warning in caught] == [__file__]
    assert len(translations[1].tokens) == MAX_LENGTH + 1
    assert translations[1].tokens[-1] == 3
    assert long.startswith(translations[1].text)


def test_the_warning_of_a_stream_names_the_line_and_the_caller(echo):
    lines = ["vier"] * 100 + ["zwanzig " * 800]
    with pytest.warns(UserWarning, match=r"line 107\b") as caught:
        list(echo.translate_stream(lines, batch_size=1, first_line=7))
    assert [warning.filename for warning in caught] == [__file__]


def test_the_longest_line_that_fits_is_not_cut(echo):
    line = "\N{GRINNING FACE}" * 127 + "\N{CJK UNIFIED IDEOGRAPH-6F22}"
    assert len(echo.source_tokenizer.encode([line])[0]) == 1 + 4 * 127 + 3 + 1 == MAX_LENGTH + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert echo.translate([line])[0].text == line


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("one string", "`lines`.*list.*Received: 'one string'"),
        (b"bytes", "`lines`.*list.*Received: b'bytes'"),
        (["vier", None], "`lines`.*strings.*Received: None"),
        ([b"vier"], "`lines`.*strings.*Received: b'vier'"),
        ([3], "`lines`.*strings.*Received: 3"),
    ],
)
def test_wrong_types_are_refused(echo, lines, message):
    with pytest.raises(ValueError, match=message):
        echo.translate(lines)


@pytest.mark.parametrize("name", ["batch_size", "batch_tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_batches_without_sentences_or_tokens_are_refused(echo, name, value):
    with pytest.raises(ValueError, match=f"`{name}`.*Received: {name}={value}"):
        echo.translate(["vier"], **{name: value})


class Shortening(Echo):
    """Gives up to three hypotheses: the row's ids, and without one and two words; their scores are -1, -2 and -3."""

    max_n_best = 3

    def search(self, source, n_best=None):
        self.asked.append(n_best)
        hypotheses = np.stack([source, source, source], 1)
        hypotheses[:, 1:, :1], hypotheses[:, 2:, :2] = 4 + ord("x"), 4 + ord("x")
        return hypotheses, np.tile(np.float32([-1, -2, -3]), (len(source), 1))


@pytest.fixture
def shortening(echo):
    translator = Shortening(echo.source_tokenizer)
    translator.asked = []
    return translator


@pytest.mark.parametrize("n_best", [1, 2, 3])
def test_there_are_as_many_hypotheses_as_requested(shortening, n_best):
    lines = ["vier drei eins", "", "zwei eins vier vier"]
    found = shortening.translate(lines, n_best=n_best)
    assert shortening.asked == [n_best] and [*shortening.translate_stream(lines, n_best=n_best)] == found
    for line, translation in zip(lines, found, strict=True):
        assert translation.text == line and translation.hypotheses == (translation, *translation.alternatives)
        assert [h.score for h in translation.hypotheses] == ([-1, -2, -3][:n_best] if line else [0])
        assert all(h.alternatives == () for h in translation.alternatives)
    assert len({h.tokens for h in found[0].hypotheses}) == n_best


@pytest.mark.parametrize("n_best", [0, 4, -1])
def test_more_hypotheses_than_there_are(shortening, n_best):
    for translate in (shortening.translate, lambda *a, **k: list(shortening.translate_stream(*a, **k))):
        with pytest.raises(ValueError, match=rf"`n_best`.*\[1, 3\].*Received: n_best={n_best}"):
            translate([], n_best=n_best)


class Given(Echo):
    """Gives the `n_best` best of some hypotheses, such as `("eins", -1.0)`."""

    def __init__(self, tokenizer, hypotheses, **options):
        super().__init__(tokenizer, **options)
        self.texts, self.scores = zip(*hypotheses, strict=True)
        self.asked = []

    @property
    def max_n_best(self):
        return len(self.texts)

    def search(self, source, n_best=None):
        self.asked.append((len(source), n_best))
        tokens = pad(self.target_tokenizer.encode(self.texts[:n_best]))
        return np.stack([tokens] * len(source)), np.stack([np.float32(self.scores[:n_best])] * len(source))


@pytest.mark.parametrize(
    ("hypotheses", "expected"),
    [
        ([("eins", -1), ("eins", -2), ("zwei", -3), ("eins", -4)], {1: ["eins"], 2: ["eins", "zwei"]}),
        ([("", -1), ("eins", -2), ("", -3), ("zwei", -4)], {1: ["eins"], 2: ["eins", "zwei"], 3: ["eins", "zwei"]}),
        ([("eins", -1), ("zwei", -1e9), ("", -1e9)], {1: ["eins"], 2: ["eins"], 3: ["eins"]}),
        ([("", -1), ("", -2), ("", -1e9)], {1: [""], 3: [""]}),
        ([("", -1e9)], {1: [""]}),
    ],
)
def test_hypotheses_differ_and_are_real(echo, hypotheses, expected):
    translator = Given(echo.source_tokenizer, hypotheses)
    for n_best, texts in expected.items():
        found = translator.translate(["vier drei", "", "zwei"], n_best=n_best)
        assert [[h.text for h in translation.hypotheses] for translation in found] == [texts, [""], texts]


def test_a_line_that_lacks_a_hypothesis_is_searched_again(echo):
    translator = Given(echo.source_tokenizer, [("", -1), ("eins", -2)])
    assert [one.text for one in translator.translate(["vier", "drei"])] == ["eins", "eins"]
    assert translator.asked == [(2, 1), (2, 2)]
    translator = Given(echo.source_tokenizer, [("zwei", -1), ("eins", -2)])
    translator.translate(["vier", "drei"])
    assert translator.asked == [(2, 1)]


def test_an_empty_translation_is_aligned(echo):
    class Attending(Echo):
        def mean_attention(self, source, target):
            assert target.size
            return np.ones((*target.shape, source.shape[1])) / source.shape[1]

    translator, lines = Attending(echo.source_tokenizer), ["vier drei", "zwei"]
    for translations in ([Translation("", 0.0)] * 2, [Translation("", 0.0, (3,)), Translation("", 0.0)]):
        for line, alignment in zip(lines, translator.align(lines, translations), strict=True):
            assert alignment.weights.shape == (0, len(alignment.source)) and alignment.source[-1][1] == len(line)
        weights, source, target = translator.attention(lines[0], translations[0])
        assert weights.shape == (len(target), len(source)) and len(target) == len(translations[0].tokens)


def test_sentences_with_fewer_hypotheses_repeat_their_last_one():
    pytest.importorskip("sentencex")

    class Ranks(Translator):
        max_n_best = 3

        def count_tokens(self, lines):
            return [len(line) for line in lines]

        def _sentences(self, lines, numbers, directions):
            return lines, self.count_tokens(lines)

        def _translate_batch(self, sentences, n_best):
            count = {"A dog runs.": 1, "A cat sleeps.": 3}
            return [[Translation(f"{s[2:5]}{i}", -1.0 - i) for i in range(count[s])] for s in sentences]

    translator = SplittingTranslator(Ranks(), "en")
    found = translator.translate(["A dog runs. A cat sleeps.", " ", "A dog runs."], n_best=3)
    texts = [[h.text for h in translation.hypotheses] for translation in found]
    assert texts == [["dog0 cat0", "dog0 cat1", "dog0 cat2"], [" "], ["dog0"]]
    assert [h.score for h in found[0].hypotheses] == [-2.0, -3.0, -4.0]


@pytest.mark.parametrize("parallel_batches", [1, 2])
def test_progress_counts_every_line_once(echo, parallel_batches):
    counts, lines = [], [*WORDS, "", " ", "eins"] * 9
    translator = Echo(echo.source_tokenizer, parallel_batches)
    translator.translate(lines, batch_size=8, progress=counts.append)
    assert sum(counts) == len(lines) and len(counts) > 10 and counts[0] == 18
    stream = []
    list(translator.translate_stream(lines, batch_size=1, progress=stream.append))
    assert sum(stream) == len(lines)


def test_imports_neither_keras_nor_tensorflow(run_python):
    program = "import sys, keras_transformer.translate.translator; print({'keras', 'tensorflow'} & set(sys.modules))"
    assert run_python(program) == "set()\n"
