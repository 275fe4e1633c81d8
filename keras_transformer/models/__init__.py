"""Keras models: `Transformer`, `LanguageModel` and `SentenceClassifier`."""

from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.sentence_classifier import SentenceClassifier
from keras_transformer.models.transformer import Transformer

__all__ = ["LanguageModel", "SentenceClassifier", "Transformer"]
