"""Keras models for sequences: encoder-decoder, decoder only, encoder only; ensembles of `Transformer`s."""

from keras_transformer.models.ensemble import Ensemble
from keras_transformer.models.language_model import LanguageModel
from keras_transformer.models.masked_language_model import MaskedLanguageModel, mask_tokens
from keras_transformer.models.sentence_classifier import SentenceClassifier
from keras_transformer.models.seq2seq import Seq2Seq
from keras_transformer.models.transformer import Transformer

__all__ = [
    "Ensemble",
    "LanguageModel",
    "MaskedLanguageModel",
    "SentenceClassifier",
    "Seq2Seq",
    "Transformer",
    "mask_tokens",
]
