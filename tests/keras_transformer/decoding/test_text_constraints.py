"""Constraints of valid text, against Python's decoder."""

import itertools
import unicodedata

import numpy as np
import pytest

from keras_transformer.config import UNK_ID
from keras_transformer.decoding import TextConstraints
from keras_transformer.decoding.text_constraints import LAST_STEPS
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece

CONSTRAINTS = TextConstraints.from_bytes(260, [1], {4 + byte: byte for byte in range(256)})
#: Every kind of byte, with the first and the last of each range.
KINDS = bytes.fromhex("09 41 7f 80 8f 90 9f a0 bf c0 c1 c2 c3 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")


def is_text(encoded):
    """Whether bytes are valid UTF-8 without control characters."""
    try:
        return not any(unicodedata.category(character) == "Cc" for character in bytes(encoded).decode())
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("lead", KINDS, ids=hex)
def test_texts_are_those_of_pythons_decoder(lead):
    for rest in itertools.chain(*(itertools.product(KINDS, repeat=length) for length in range(3 + (lead == 0xF4)))):
        text, state, is_valid = (lead, *rest), 0, True
        for kind in CONSTRAINTS.classes[[4 + byte for byte in text]]:
            is_valid &= CONSTRAINTS.allowed[state, kind]
            state = CONSTRAINTS.following[state, kind]
        assert (is_valid and state == 0) == is_text(text), text


@pytest.mark.parametrize("lead", ["\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{EURO SIGN}", "\N{GRINNING FACE}"])
def test_a_character_begins_if_its_bytes_fit(lead):
    encoded = lead.encode()
    for late in range(LAST_STEPS + 1):
        assert CONSTRAINTS.allowed[late, CONSTRAINTS.classes[4 + encoded[0]]] == (len(encoded) <= LAST_STEPS - late)


def test_constraints_are_values():
    same = TextConstraints.from_bytes(260, [1], {4 + byte: byte for byte in range(256)})
    assert same == CONSTRAINTS and hash(same) == hash(CONSTRAINTS)


def test_the_constraints_of_a_tokenizer_follow_from_its_pieces():
    tokenizer = Tokenizer(train_sentencepiece(["abc abd xyz"], TokenizerConfig(vocab_size=270)))
    found = tokenizer.text_constraints
    pieces = [tokenizer.pieces[i] for i in found.forbidden]
    assert found.forbidden[0] == UNK_ID and {"<0x00>", "<0x09>", "<0x7F>", "<0xC0>", "<0xFF>"} < {*pieces}
    assert {"<0x20>", "<0x80>", "<0xC3>", "</s>", "a"}.isdisjoint(pieces) and len(found.bytes) == 256
    assert np.flatnonzero(found.classes > 1).tolist() == [*range(4 + 0x80, 4 + 0xC0), *range(4 + 0xC2, 4 + 0xF5)]
