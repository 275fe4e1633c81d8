import difflib

import numpy as np
import pytest

from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.data.augmentation import (
    Augmenter,
    augment,
    joined,
    merged,
    title_case,
    with_typos,
    without_end,
)
from keras_transformer.training.data_config import AugmentationConfig

PAIRS = [(f"the old man number {i} sleeps .", f"der alte Mann Nummer {i} schläft .") for i in range(2000)]
PLACES = {
    "upper_case": ("THE OLD MAN NUMBER 1 SLEEPS .", "DER ALTE MANN NUMMER 1 SCHLÄFT ."),
    "title_case": ("The Old Man Number 1 Sleeps .", "Der Alte Mann Nummer 1 Schläft ."),
    "no_end_punctuation": ("the old man number 1 sleeps", "der alte Mann Nummer 1 schläft"),
}


def generator(seed=1):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", PLACES)
def test_each_change_has_its_probability_and_changes_both_sides(name):
    always = augment(PAIRS[:2], AugmentationConfig(**{name: 0.999999}), generator())
    assert always[1] == PLACES[name]
    changed = augment(PAIRS, AugmentationConfig(**{name: 0.2}), generator())
    found = sum(new != old for new, old in zip(changed, PAIRS, strict=True))
    assert 330 < found < 470  # 400 expected; 4 standard deviations are 72.


def test_without_options_nothing_changes():
    assert augment(PAIRS, AugmentationConfig(merge=0.5, source_sampling=0.5), generator()) == PAIRS


def test_the_generator_decides():
    config = AugmentationConfig(upper_case=0.3, typos=0.3, no_end_punctuation=0.3)
    one, again, other = (augment(PAIRS, config, generator(seed)) for seed in (1, 1, 2))
    assert one == again != other


def test_a_typo_changes_one_word_by_one_step():
    kinds = set()
    for seed in range(200):
        line = with_typos("an elephantine, word!", 0.999999, generator(seed))
        word = line[3:-7]
        assert line.startswith("an e") and line.endswith(", word!"[-1]) and len(line.split()) == 3
        kinds.add(len(line) - len("an elephantine, word!"))
        assert difflib.SequenceMatcher(None, "elephantine", word.split(",")[0]).ratio() > 0.8
    assert kinds == {-2, -1, 0, 1, 2}  # Two words have a typo each.


def test_typos_have_their_probability_per_word():
    changed = augment(PAIRS, AugmentationConfig(typos=0.1), generator())
    assert [target for _, target in changed] == [target for _, target in PAIRS]
    words = [
        new != old
        for (line, _), (before, _) in zip(changed, PAIRS, strict=True)
        for new, old in zip(line.split(), before.split(), strict=True)
        if len(old) >= 4 and old.isalpha()
    ]
    assert len(words) == 4000 and 300 < sum(words) < 480  # Some typos, such as swapped equal letters, change nothing.


def test_short_words_and_numbers_have_no_typos():
    assert with_typos("the old man, 123456, a_b", 0.999999, generator()) == "the old man, 123456, a_b"


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("Wirklich?!", "Really ?"), ("Wirklich", "Really")),
        (("你好。", "Hello."), ("你好", "Hello")),
        (("no stop", "Punkt."), ("no stop", "Punkt.")),
        (("...", "Punkt."), ("...", "Punkt.")),
    ],
)
def test_end_punctuation(pair, expected):
    assert without_end(pair) == expected


def test_title_case_keeps_other_letters():
    assert title_case("don't touch the iPhone , ok") == "Don't Touch The IPhone , Ok"


def test_merged_pairs_are_neighbours_and_none_is_lost():
    groups = merged(PAIRS, 0.3, generator())
    assert [i for group in groups for i in group] == list(range(2000))
    sizes = np.bincount([len(group) for group in groups])
    assert len(sizes) == 3 and 380 < sizes[2] < 550  # 0.3 / 1.3 of 2,000 pairs.
    text = joined(PAIRS, groups)
    assert len(text) == len(groups)
    assert text[0] == tuple(" ".join(PAIRS[i][side] for i in groups[0]) for side in (0, 1))


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_probabilities_are_checked(value):
    with pytest.raises(ValueError, match=rf"augmentation\.typos.*typos={value}"):
        AugmentationConfig(typos=value)


def test_only_a_side_that_is_sampled_needs_a_bpe_tokenizer(sentencepiece_model):
    lines = [line for pair in PAIRS[:200] for line in pair]
    tokenizers = tuple(Tokenizer(sentencepiece_model(lines, kind, vocab_size=300)) for kind in ("bpe", "unigram"))
    Augmenter(AugmentationConfig(source_sampling=0.1), tokenizers)
    with pytest.raises(ValueError, match="requires a BPE tokenizer"):
        Augmenter(AugmentationConfig(target_sampling=0.1), tokenizers)
