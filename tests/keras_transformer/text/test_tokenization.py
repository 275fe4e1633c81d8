import re

import pytest

from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece

TEXT = [f"{tens} {ones}" for tens in ("zwanzig", "dreißig", "vierzig") for ones in ("eins", "zwei", "drei", "vier")]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_sentencepiece(TEXT, TokenizerConfig(vocab_size=290)))


def test_special_ids_come_first_in_a_vocabulary_of_the_size(tokenizer):
    assert tokenizer.vocab_size == 290
    assert [tokenizer._processor.id_to_piece(i) for i in range(4)] == ["<pad>", "<unk>", "<s>", "</s>"]


def test_lines_end_with_the_end_id_and_come_back(tokenizer):
    rows = tokenizer.encode([*TEXT, ""])
    assert all(row[-1] == 3 and not {0, 1, 2, 3} & set(row[:-1]) for row in rows)
    assert rows[-1] == [3]
    assert tokenizer.decode(rows) == [*TEXT, ""]


@pytest.mark.parametrize("line", ["\N{GRINNING FACE}", "zwei \N{FAMILY} drei", "\N{CJK UNIFIED IDEOGRAPH-6F22}é"])
def test_unseen_characters_are_bytes_and_come_back(tokenizer, line):
    (row,) = tokenizer.encode([line])
    assert 1 not in row
    assert tokenizer.decode([row]) == [line]


@pytest.mark.parametrize("end", [3, 0])
def test_decoding_stops_at_end_or_padding(tokenizer, end):
    (row,) = tokenizer.encode(["drei"])
    assert tokenizer.decode([[*row[:-1], end, *row[:-1]]]) == ["drei"]


def test_normalization_is_an_option():
    for rule, expected in (("nfc", "m² fi"), ("nmt_nfkc", "m2 fi"), ("identity", "m² \N{LATIN SMALL LIGATURE FI}")):
        tokenizer = Tokenizer(train_sentencepiece(TEXT, TokenizerConfig(vocab_size=290, normalization=rule)))
        assert tokenizer.decode(tokenizer.encode(["m² \N{LATIN SMALL LIGATURE FI}"])) == [expected]


def test_text_cannot_produce_tags():
    text = ["one <bt> two <bt>", "<bt> three <bt>"]
    tokenizer = Tokenizer(train_sentencepiece(text, TokenizerConfig(), tags=["<bt>"]))
    tag = tokenizer.pieces.index("<bt>")
    rows = tokenizer.encode([*text, "<bt>", "a<bt>b", "＜bt＞", "<b\u00adt>", "▁<bt>"])
    assert all(tag not in row for row in rows)
    assert tokenizer.decode([[tag, *rows[0]]]) == [text[0]]


def test_hash_tells_models_apart(tokenizer):
    other = Tokenizer(train_sentencepiece(TEXT, TokenizerConfig(vocab_size=291)))
    assert tokenizer.sha256 == Tokenizer(tokenizer.model).sha256 != other.sha256


def test_vocabulary_larger_than_the_text_allows():
    message = r"`tokenizer.vocab_size`.*?(\d+).*Received: vocab_size=5000"
    with pytest.raises(ValueError, match=message) as caught:
        train_sentencepiece(TEXT, TokenizerConfig(vocab_size=5000))
    limit = int(re.search(message, str(caught.value))[1])
    assert Tokenizer(train_sentencepiece(TEXT, TokenizerConfig(vocab_size=limit))).vocab_size == limit
    with pytest.raises(ValueError, match=rf"\b{limit}\b.*Received: vocab_size={limit + 1}"):
        train_sentencepiece(TEXT, TokenizerConfig(vocab_size=limit + 1))


def test_a_vocabulary_smaller_than_the_characters_is_refused():
    text = ["".join(chr(0x4E00 + i) for i in range(40))]
    with pytest.raises(ValueError, match="`tokenizer.vocab_size` must be at least 301 .*Received: vocab_size=270"):
        train_sentencepiece(text, TokenizerConfig(vocab_size=270))
    assert Tokenizer(train_sentencepiece(text, TokenizerConfig(vocab_size=301))).vocab_size == 301


def test_the_default_size_fits_many_characters():
    text = ["".join(chr(0x4E00 + i) for i in range(start, start + 50)) for start in range(0, 8000, 50)]
    tokenizer = Tokenizer(train_sentencepiece(text * 2, TokenizerConfig()))
    assert len(set(tokenizer.pieces) & set("".join(text))) == 8000
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", [[], ["", ""], [" "], ["\u00ad"]])
def test_training_without_text_is_refused(text):
    with pytest.raises(ValueError, match="tokenizer.*text"):
        train_sentencepiece(text, TokenizerConfig(vocab_size=300))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 260}, "`tokenizer.vocab_size`.*261.*vocab_size=260"),
        ({"sample_size": 0}, "`tokenizer.sample_size`.*sample_size=0"),
        ({"character_coverage": 0.97}, r"`tokenizer.character_coverage`.*0.98.*character_coverage=0.97"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TokenizerConfig(**options)


def test_another_file_is_refused(tmp_path):
    file = tmp_path / "tokenizer.model"
    file.write_bytes(b"no model")
    with pytest.raises(ValueError, match=f"SentencePiece model.*{file}"):
        Tokenizer(file)


def test_a_truncated_model_is_refused(tmp_path, tokenizer):
    file = tmp_path / "tokenizer.model"
    file.write_bytes(tokenizer.model[: len(tokenizer.model) // 2])
    with pytest.raises(ValueError, match=f"SentencePiece model.*{file}"):
        Tokenizer(file)


def test_other_special_ids_are_refused(tmp_path):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=275, byte_fallback=True, minloglevel=2
    )
    with pytest.raises(ValueError, match=r"ids of pad.*Received: \(-1, 0, 1, 2\)"):
        Tokenizer(model.getvalue())
