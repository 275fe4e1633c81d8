import itertools

import numpy as np
import pytest

from keras_transformer.config import EOS_ID
from keras_transformer.storage.rows import TokenSide
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece
from keras_transformer.training.data.bpe_dropout import BpeDropout

WORDS = ["lower", "lowest", "newer", "newest", "wider", "widest", "low", "new", "wide", "schönes", "Wetter"]
LINES = [" ".join(words) for words in itertools.permutations(WORDS, 2)]
ODD = ["", "x", "a\N{GRINNING FACE}b lower", "newestlowestwidest", "  low   low ", "lowlowlowlow", "日本 wider"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_sentencepiece(LINES, TokenizerConfig(vocab_size=320)))


@pytest.fixture(scope="module")
def best(tokenizer):
    return TokenSide.of_lists(tokenizer.encode(LINES + ODD))


def sample(tokenizer, side, probability, seed=1):
    return BpeDropout(tokenizer)(side, probability, np.random.default_rng(seed))


def test_without_dropout_it_gives_the_best_subwords(tokenizer, best):
    assert sample(tokenizer, best, 0.0).lists() == best.lists()


def test_the_text_and_the_end_tokens_are_kept(tokenizer, best):
    found = sample(tokenizer, best, 0.3)
    assert tokenizer.decode(found.lists()) == tokenizer.decode(best.lists())
    assert all(row[-1] == EOS_ID and EOS_ID not in row[:-1] for row in found.lists())


def test_with_full_dropout_only_characters_remain(tokenizer, best):
    characters = {i for i in tokenizer.text_ids if len(tokenizer.pieces[i]) == 1}
    found = set(sample(tokenizer, best, 1.0).ids.tolist()) - {EOS_ID}
    assert len(found) > 10 and found - characters == {i for i in best.ids.tolist() if 4 <= i < 260}  # Bytes.


def test_the_seed_decides(tokenizer, best):
    one, again, other = (sample(tokenizer, best, 0.3, seed).lists() for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_each_split_has_the_probability_of_the_algorithm(tokenizer, probability):
    """Compared with Algorithm 1 of the paper, run on one word at a time."""
    word, count = "\u2581newest", 4000
    pieces = {tokenizer.pieces[i]: i for i in tokenizer.text_ids}
    rng = np.random.default_rng(7)

    def algorithm():
        parts = list(word)
        while True:
            merges = [(pieces[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in pieces]
            merges = [merge for merge in merges if rng.random() >= probability]
            if not merges:
                return tuple(parts)
            i = min(merges)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]

    side = TokenSide.of_lists(tokenizer.encode(["newest"] * count))
    found = [tuple(tokenizer.pieces[i] for i in row[:-1]) for row in sample(tokenizer, side, probability).lists()]
    expected = [algorithm() for _ in range(count)]
    for split in {*found, *expected}:
        shares = [list(splits).count(split) / count for splits in (found, expected)]
        assert shares[0] == pytest.approx(shares[1], abs=0.045)  # 4 standard deviations of the difference.


def test_user_defined_symbols_are_not_split(sentencepiece_model):
    lines = [*LINES, "< b t >"]
    tokenizer = Tokenizer(sentencepiece_model(lines, "bpe", vocab_size=330, user_defined_symbols=["<bt>"]))
    tag = tokenizer.pieces.index("<bt>")
    side = TokenSide.of_lists([[tag, *row] for row in tokenizer.encode(LINES)])
    assert all(row[0] == tag for row in sample(tokenizer, side, 0.9).lists())


def test_unigram_models_are_refused(sentencepiece_model):
    with pytest.raises(ValueError, match="BPE"):
        BpeDropout(Tokenizer(sentencepiece_model(LINES, "unigram", vocab_size=280)))


@pytest.mark.slow
def test_many_sentences_are_segmented_at_a_time(tokenizer):
    """More than 2**23 characters, as in the blocks of large batches."""
    (row,) = tokenizer.encode(["low"])
    side = TokenSide(np.tile(np.array(row, "int32"), 3_000_000), np.full(3_000_000, len(row), "int32"))
    found = sample(tokenizer, side, 0.0)
    assert np.array_equal(found.ids, side.ids) and np.array_equal(found.lengths, side.lengths)
