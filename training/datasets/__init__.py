"""Parallel text as `tf.data`: TensorFlow Datasets by name, or aligned text files."""

from keras_transformer.training.datasets.corpus import Corpus, load_corpus, read_pairs

__all__ = ["Corpus", "load_corpus", "read_pairs"]
