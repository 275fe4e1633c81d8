"""Parallel text: TensorFlow Datasets by name, or aligned text files."""

from keras_transformer.training.datasets.corpus import Corpus, Pairs, load_corpus, read_pairs

__all__ = ["Corpus", "Pairs", "load_corpus", "read_pairs"]
