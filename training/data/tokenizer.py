"""Tokenizers trained on a corpus."""

import dataclasses
import itertools
import random
import sys
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.counting import counted
from keras_transformer.text.normalization import used_shapes
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece
from keras_transformer.training.data.augmentation import augment
from keras_transformer.training.data_config import AugmentationConfig


def train_tokenizers(
    pairs: Iterable[tuple[str, str]],
    config: TokenizerConfig,
    tags: Sequence[str] = (),
    augmentation: AugmentationConfig | None = None,
) -> tuple[bytes, ...]:
    """Trains SentencePiece models on the training pairs: `(shared,)` or `(source, target)`.

    Args:
        pairs: pairs of source and target text.
        config: the options.
        tags: symbols that are one subword of the source each. Text cannot produce these subwords.
        augmentation: random changes of the training text. The tokenizers learn from text in the changed case, too:
            otherwise they would divide it into single letters. They do not learn from typing errors.
    """
    sample = _sample(pairs, config.sample_size)
    if augmentation is not None:
        case = dataclasses.replace(augmentation, no_end_punctuation=0.0, typos=0.0)
        sample = augment(sample, case, np.random.default_rng(0))
    print(f"training the tokenizer on {counted(len(sample), 'pair')}", file=sys.stderr)
    kept = used_shapes(target for _, target in sample)  # What the model may write.
    if config.shared:
        models = (train_sentencepiece(itertools.chain.from_iterable(sample), config, tags, kept),)
    else:
        source, target = zip(*sample, strict=True) if sample else ((), ())
        models = tuple(train_sentencepiece(*side, kept) for side in ((source, config, tags), (target, config, ())))
    sizes = [f"{Tokenizer(model).vocab_size:,}" for model in models]
    print(f"vocabulary: {' and '.join(sizes)} subwords", file=sys.stderr)
    return models


def _sample(pairs, size):
    """At most `size` random pairs, all with the same probability (reservoir sampling)."""
    generator = random.Random(0)
    sample = []
    for i, pair in enumerate(pairs):
        place = i if i < size else generator.randrange(i + 1)
        if place < size:
            sample[place : place + 1] = [pair]
    return sample
