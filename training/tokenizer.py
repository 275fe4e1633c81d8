"""Subword models learnt from a corpus, and the corpus as ids."""

import itertools
import random

import tensorflow as tf
import tensorflow_text as tf_text

from keras_transformer.tokenization import TokenizerConfig, train_sentencepiece


def train_tokenizers(pairs: tf.data.Dataset, config: TokenizerConfig) -> tuple[bytes, ...]:
    """Learns subwords from the training pairs.

    Args:
        pairs: dataset of `(source, target)` strings.
        config: the options.

    Returns:
        Serialised SentencePiece models: `(shared,)` or `(source, target)`.

    Raises:
        ValueError: if the text does not hold enough different pieces for the vocabulary.
    """
    sample = _sample(pairs, config.sample_size)
    if config.shared:
        return (train_sentencepiece(itertools.chain.from_iterable(sample), config),)
    return tuple(train_sentencepiece((pair[side] for pair in sample), config) for side in (0, 1))


class PairTokenizer:
    """Pairs of lines as pairs of ids.

    TensorFlow frees the tokenizers with this object, so it must outlive the datasets it made.

    Args:
        models: serialised SentencePiece models, `(shared,)` or `(source, target)`.
    """

    def __init__(self, models: tuple[bytes, ...]):
        self.source, self.target = (tf_text.SentencepieceTokenizer(m, add_eos=True) for m in (models[0], models[-1]))

    def __call__(self, pairs: tf.data.Dataset) -> tf.data.Dataset:
        """Tokenizes a dataset.

        Args:
            pairs: dataset of `(source, target)` string scalars.

        Returns:
            Dataset of `(source, target)` int32 vectors, each with the end id.
        """

        def encode(source, target):
            return self.source.tokenize(source), self.target.tokenize(target)

        return pairs.batch(256).map(encode, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def _sample(pairs, size):
    """At most `size` pairs of text, each as likely as any other (reservoir sampling)."""
    generator = random.Random(0)
    sample = []
    batches = pairs.batch(1024).as_numpy_iterator()
    for i, pair in enumerate(pair for batch in batches for pair in zip(*batch, strict=True)):
        place = i if i < size else generator.randrange(i + 1)
        if place < size:
            sample[place : place + 1] = [tuple(side.decode("utf-8", errors="replace") for side in pair)]
    return sample
