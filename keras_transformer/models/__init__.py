"""Keras models: `Transformer`, `LanguageModel` and `SentenceClassifier`; ensembles of `Transformer`s."""

from keras_transformer.models.ensemble import Ensemble
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.sentence_classifier import SentenceClassifier
from keras_transformer.models.transformer import Transformer

__all__ = ["Ensemble", "LanguageModel", "SentenceClassifier", "Transformer"]
