import random

import pytest

from keras_transformer.text.sentences import SentenceSplitter

#: Parts of text that are hard to split. A no-break space after an initial makes sentencex panic.
PARTS = [
    *("a", "Bee", "c d", " ", "  ", ".", "!", "?", "。", "…", "\t", "\u00a0", "3", "é", "你", "(", ")", ",", ";"),
    *("\n", "\n\n", "- ", "* ", "Mr.", "B.", "😀", "\u2028", "\r\n", "z.B.", "\u200b", "؟", "।"),
]


def count_words(lines):
    return [len(line.split()) for line in lines]


@pytest.mark.parametrize("language", ["en", "de", "zh-Hans", "hi", "xx", None])
def test_pieces_make_up_the_text(language):
    draw = random.Random(1)
    splitter = SentenceSplitter(language, count_words, 5)
    for _ in range(1000):
        text = "".join(draw.choice(PARTS) for _ in range(draw.randrange(40)))
        split = splitter.split(text)
        assert "".join(piece.text for piece in split.pieces) == text
        assert split.join(split.sentences).replace(" ", "") == text.replace(" ", "")
        assert all(sentence == sentence.strip() for sentence in split.sentences)
        assert max(count_words(split.sentences), default=0) <= 5


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "Dr. Smith is here. Come in!", ["Dr. Smith is here.", "Come in!"]),
        ("de", "Am 3. Mai kam er. Das ist z.B. neu.", ["Am 3. Mai kam er.", "Das ist z.B. neu."]),
        ("zh", "这是书。那是笔。", ["这是书。", "那是笔。"]),
        ("en", "One line\nAnother one", ["One line", "Another one"]),
        ("en", "  - A list\n  - of two\n\n# Title", ["A list", "of two", "Title"]),
        ("en", "name\tA city\t\tx", ["name", "A city", "x"]),
        ("en", "-5 degrees", ["-5 degrees"]),
        (
            "en",
            "1. Two men are outside. A dog runs.\n10) It barks.",
            ["Two men are outside.", "A dog runs.", "It barks."],
        ),
        ("de", "1. FC Köln im 2. Weltkrieg. Das war neu.", ["1. FC Köln im 2. Weltkrieg.", "Das war neu."]),
        ("en", "| A dog | a cat |\n- [x] Done", ["A dog", "a cat", "Done"]),
        ("en", " *** \n\n → \n", []),
        ("en", "", []),
    ],
)
def test_texts_are_split_into_their_sentences(language, text, sentences):
    assert SentenceSplitter(language).split(text).sentences == sentences


def test_white_space_stays():
    split = SentenceSplitter("en").split("\tHello there.  Come in!\n\n \u00a0* E\u00a0\r\n")
    assert split.join(["1", "2", "3"]) == "\t1  2\n\n \u00a0* 3\u00a0\r\n"


def test_sentences_without_space_between_them_get_one_in_latin_script():
    split = SentenceSplitter("zh").split("这是书。那是笔。")
    assert split.join(["This is a book.", "That is a pen."]) == "This is a book. That is a pen."
    assert split.join(["これは本です。", "あれはペンです。"]) == "これは本です。あれはペンです。"


def test_long_sentences_are_cut_at_the_best_place():
    split = SentenceSplitter("en", count_words, 6).split("one two three four, five; six seven eight nine ten. Short.")
    assert split.sentences == ["one two three four, five;", "six seven eight nine ten.", "Short."]
    (warning,) = split.warnings
    assert warning.startswith("a sentence has 10 subwords, more than 6, and is translated in 2 parts: one two")
    assert split.join(["a", "b", "c"]) == "a b c"


def test_a_long_word_is_cut():
    split = SentenceSplitter("en", lambda lines: [*map(len, lines)], 4).split("abcdefghij")
    assert "".join(split.sentences) == "abcdefghij" and max(map(len, split.sentences)) <= 4


def test_lines_that_are_not_split():
    splitter = SentenceSplitter("en", splits_lines=False)
    assert splitter.split("One. Two.\n\nThree.").sentences == ["One. Two.", "Three."]
