"""Parallel text as `tf.data`: TensorFlow Datasets by name, or aligned text files."""

from keras_transformer.training.datasets.corpus import Corpus, load_corpus

__all__ = ["Corpus", "load_corpus"]
