"""tokenizer.json in place of a SentencePiece model. The tests beside transformers compare real ones."""

import json
import re

import pytest
import sentencepiece

from keras_transformer.export.importer.fast_tokenizer import read_fast_tokenizer
from keras_transformer.export.importer.json_files import reading

SPACES = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
SPECIAL = ["<pad>", "</s>", "<unk>"]
OF_TRAINING = re.compile("<z>")
UNIGRAM = {
    "type": "Unigram",
    "unk_id": 2,
    "vocab": [
        *([piece, 0.0] for piece in SPECIAL),
        *(["▁", -4.0], ["a", -3.0], ["▁a", -1.0]),
        *([piece, 0.0] for piece in ("<x>", "<z>", "<y>")),
    ],
}
BPE = {
    "type": "BPE",
    "unk_token": "<unk>",
    "vocab": {piece: i for i, piece in enumerate([*SPECIAL, "▁a", "bc", "▁", "abc", "a", "b", "c"])},
    "merges": [["b", "c"], ["▁", "a"], ["a", "bc"]],
}


def write(folder, model, **changes):
    added = [{"content": piece, "special": piece != "<x>"} for piece in [*SPECIAL, "<x>", "<y>"]]
    content = {"added_tokens": added, "normalizer": None, "pre_tokenizer": SPACES, "model": model, **changes}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder / "tokenizer.json"


def split(path, *lines, way="sentencepiece"):
    model = read_fast_tokenizer(path, way, OF_TRAINING)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString()).encode([*lines], out_type=str)


def test_unigram(tmp_path):
    """The last pieces, a special one and one of the training, are not in the model. `<x>` is never divided."""
    path = write(tmp_path, UNIGRAM)
    assert split(path, "a<x>a q") == [["▁a", "<x>", "a", "▁", "q"]]
    assert [piece.piece for piece in read_fast_tokenizer(path, "sentencepiece", OF_TRAINING).pieces] == [
        *SPECIAL,
        *("▁", "a", "▁a", "<x>"),
    ]


@pytest.mark.parametrize("is_old", [False, True])
def test_bpe(tmp_path, is_old):
    """The order of the merges decides, not that of the ids: `bc` comes before `▁a`."""
    merges = [" ".join(merge) for merge in BPE["merges"]] if is_old else BPE["merges"]
    path = write(tmp_path, {**BPE, "merges": merges})
    assert split(path, "abc", "aabc") == [["▁a", "bc"], ["▁a", "abc"]]


def test_a_piece_without_merges_is_in_no_text(tmp_path):
    """It does not keep the other pieces from being merged either."""
    path = write(tmp_path, {**BPE, "vocab": {**BPE["vocab"], "ca": 10}})
    assert split(path, "ca cabc") == [["▁", "c", "a", "▁", "c", "abc"]]


def test_bytes(tmp_path):
    """A vocabulary with all bytes encodes every character."""
    vocabulary = [*UNIGRAM["vocab"], *([f"<0x{byte:02X}>", 0.0] for byte in range(256))]
    assert split(write(tmp_path, {**UNIGRAM, "vocab": vocabulary}), "aé") == [["▁a", "<0xC3>", "<0xA9>"]]
    assert split(write(tmp_path, {**UNIGRAM, "vocab": vocabulary[:-1]}), "aé") == [["▁a", "é"]]


def test_spaces(tmp_path):
    steps = [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Strip"}]
    without = {**SPACES, "prepend_scheme": "never"}
    assert split(write(tmp_path, UNIGRAM), " a  a") == [["▁", "▁a", "▁", "▁a"]]
    assert split(write(tmp_path, UNIGRAM, normalizer={"type": "Sequence", "normalizers": []}), "a") == [["▁a"]]
    assert split(write(tmp_path, UNIGRAM, normalizer={"type": "Sequence", "normalizers": steps}), " a  a") == [
        ["▁a", "▁a"]
    ]
    assert split(write(tmp_path, UNIGRAM, pre_tokenizer=without), "a a") == [["a", "▁a"]]
    old = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False}
    assert split(write(tmp_path, UNIGRAM, pre_tokenizer=old), "a a") == [["a", "▁a"]]


def test_the_order_of_fairseq(tmp_path):
    vocabulary = [[piece, 0.0] for piece in ("<s>", "<pad>", "</s>", "<unk>")]
    path = write(tmp_path, {**UNIGRAM, "unk_id": 3, "vocab": [*vocabulary, ["▁", -4.0], ["▁a", -1.0], ["<y>", 0.0]]})
    pieces = [piece.piece for piece in read_fast_tokenizer(path, "fairseq", OF_TRAINING).pieces]
    assert pieces == ["<unk>", "<s>", "</s>", "▁", "▁a"] and split(path, "a", way="fairseq") == [["▁a"]]


@pytest.mark.parametrize(
    ("model", "changes", "problem"),
    [
        (UNIGRAM, {"pre_tokenizer": {"type": "ByteLevel"}}, "a step .* not supported. .*ByteLevel"),
        (UNIGRAM, {"normalizer": {"type": "Lowercase"}}, "a step .* not supported. .*Lowercase"),
        (UNIGRAM, {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"}}, "base64"),
        ({"type": "WordPiece", "vocab": {"a": 0}}, {}, "a model of type WordPiece is not supported"),
        ({**UNIGRAM, "vocab": [["a", -1.0]]}, {}, "must contain <unk>"),
        ({**UNIGRAM, "vocab": [*UNIGRAM["vocab"], ["a", -1.0]]}, {}, "a piece is in the vocabulary twice"),
        ({**UNIGRAM, "vocab": [["<unk>"]]}, {}, "length 1"),
        ({**UNIGRAM, "vocab": None}, {}, "unknown contents .*TypeError"),
        ({**BPE, "vocab": {**BPE["vocab"], "x": 12}}, {}, "must have all ids from 0 on"),
        ({**BPE, "end_of_word_suffix": "</w>"}, {}, "end_of_word_suffix of a BPE model is not supported"),
        (UNIGRAM, {"added_tokens": 3}, "unknown contents .*TypeError"),
    ],
)
def test_other_files_are_refused(tmp_path, model, changes, problem):
    path = write(tmp_path, model, **changes)
    with pytest.raises(ValueError, match=problem):
        reading(lambda path: read_fast_tokenizer(path, "sentencepiece", OF_TRAINING), path)


def test_another_start_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must start with <s>, <pad>, </s>, <unk>. Received: <pad>, </s>, <unk>, ▁"):
        read_fast_tokenizer(write(tmp_path, UNIGRAM), "fairseq", OF_TRAINING)
