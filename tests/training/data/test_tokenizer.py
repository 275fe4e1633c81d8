import numpy as np
import pytest

from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig
from keras_transformer.training.data.tokenizer import _sample, train_tokenizers
from keras_transformer.training.data_config import AugmentationConfig

SOURCE = ["twenty one", "thirty two", "twenty two", "one hundred", "two hundred one"] * 3
TARGET = ["einundzwanzig", "zweiunddreißig", "zweiundzwanzig", "einhundert", "zweihunderteins"] * 3
PAIRS = list(zip(SOURCE, TARGET, strict=True))


def test_both_sides_share_one_vocabulary():
    (model,) = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=300))
    tokenizer = Tokenizer(model)
    assert tokenizer.vocab_size == 300
    for word in ("twenty", "zwei"):
        assert len(tokenizer.encode([word])[0]) < len(word)


def test_text_in_upper_case_has_subwords_if_training_changes_the_case():
    options = TokenizerConfig(vocab_size=320)
    augmentations = None, AugmentationConfig(typos=0.9), AugmentationConfig(upper_case=0.5, typos=0.9)
    models = [train_tokenizers(PAIRS, options, augmentation=augmentation)[0] for augmentation in augmentations]
    assert models[1] == models[0]
    plain, upper = (sum(map(len, Tokenizer(models[i]).encode(["TWENTY", "HUNDRED"]))) for i in (0, 2))
    assert upper < plain


def test_separate_vocabularies_know_their_own_side():
    models = train_tokenizers(PAIRS, TokenizerConfig(vocab_size=290, shared=False))
    source, target = map(Tokenizer, models)
    assert source.vocab_size == target.vocab_size == 290
    assert len(source.encode(["twenty"])[0]) < len(target.encode(["twenty"])[0])
    assert len(target.encode(["zweiund"])[0]) < len(source.encode(["zweiund"])[0])


def test_a_vocabulary_too_large_for_the_text_is_refused():
    with pytest.raises(ValueError, match=r"`tokenizer.vocab_size` .*\d+.*Received: .*vocab_size=5000"):
        train_tokenizers(PAIRS, TokenizerConfig(vocab_size=5000))


@pytest.mark.parametrize("shared", [True, False])
def test_the_default_vocabulary_is_what_a_small_text_holds(shared):
    for model in train_tokenizers(PAIRS, TokenizerConfig(shared=shared)):
        limit = Tokenizer(model).vocab_size
        with pytest.raises(ValueError, match="`tokenizer.vocab_size` .*Received: "):
            train_tokenizers(PAIRS, TokenizerConfig(vocab_size=limit + 1, shared=shared))


def test_sample_of_a_small_corpus_is_the_corpus():
    assert _sample(PAIRS, 100) == PAIRS


def test_the_sample_covers_all_of_a_large_corpus():
    lines = [f"s{i}" for i in range(3000)]
    sample = _sample(((line, line.upper()) for line in lines), 600)
    numbers = [int(source[1:]) for source, _ in sample]
    assert len(set(numbers)) == 600
    assert all(target == source.upper() for source, target in sample)
    # Each third of the corpus has the same probability: 200 samples on average, standard deviation 10.
    counts = np.bincount([number // 1000 for number in numbers])
    assert all(150 < count < 250 for count in counts)


def test_the_sample_is_what_is_learnt_from():
    lines = ["aaaa bbbb"] * 50 + ["cccc dddd"] * 50
    with pytest.raises(ValueError, match="`tokenizer.vocab_size` .*Received: "):
        train_tokenizers(zip(lines, lines, strict=True), TokenizerConfig(vocab_size=400, sample_size=10))
