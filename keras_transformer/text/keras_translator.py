"""Translation with a Keras model."""

from pathlib import Path

import numpy as np

from keras_transformer.decoding import BeamSearch
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.text.translator import TokenTranslator, with_n_best


class ModelTranslator(TokenTranslator):
    """Translates with a `Transformer` in memory.

    Args:
        model: a `Transformer`.
        tokenizers: source tokenizer and target tokenizer.
        strategy: `BeamSearch` or `GreedySearch`. Default: `BeamSearch()`. The number of hypotheses per line is an
            argument of `translate`.

    Example:

        ModelTranslator(model, (tokenizer, tokenizer), GreedySearch()).translate(["Two men are outside."])[0].text
    """

    def __init__(self, model, tokenizers: tuple[Tokenizer, Tokenizer], strategy=None):
        super().__init__(*tokenizers, model.config.max_length)
        self.model = model
        self.strategy = strategy or BeamSearch()

    @property
    def max_n_best(self) -> int:
        """See `Translator.max_n_best`."""
        return self.strategy.beam_size if isinstance(self.strategy, BeamSearch) else self.strategy.n_best

    def search(self, source: np.ndarray, n_best: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See `TokenTranslator.search`."""
        return tuple(self.model.generate(source, with_n_best(self.strategy, n_best))[:2])

    def mean_attention(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """See `TokenTranslator.mean_attention`."""
        return np.mean([weights.mean(axis=1) for weights in self.model.attention_scores(source, target)], axis=0)


class KerasTranslator(ModelTranslator):
    """Translates with the Keras model of a model directory.

    Args:
        directory: model directory of a finished training.
        strategy: see `ModelTranslator`.

    Raises:
        ValueError: if the directory contains no finished model, the model file cannot be read, or a tokenizer belongs
            to another model.

    Example:

        KerasTranslator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(self, directory: str | Path, strategy=None):
        from keras_transformer.text.finished_model import load_finished

        super().__init__(*load_finished(ModelDirectory(directory)), strategy)
