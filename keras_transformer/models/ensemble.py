"""Several models that translate together."""

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from keras_transformer.models.generation import Seq2SeqGeneration
from keras_transformer.models.transformer import Transformer


class Ensemble(keras.Model, Seq2SeqGeneration):
    """Models with one vocabulary that translate together. Each token has the mean of their probabilities.

    An ensemble translates better than each of its models, and takes as long as all of them. It cannot be saved or
    exported.

    Args:
        models: the `Transformer`s. Their sizes may differ.

    Raises:
        ValueError: if there are no models, or their vocabularies or special ids differ.

    Example:

    >>> from keras_transformer import TransformerConfig
    >>> config = TransformerConfig.preset("tiny", vocab_size=100)
    >>> ensemble = Ensemble([Transformer(config), Transformer(config)])
    >>> ensemble.generate([[5, 6, 7, 3]]).tokens.shape[:2]
    (1, 1)
    """

    def __init__(self, models: Sequence[Transformer]):
        if not models:
            raise ValueError("`models` must contain at least one model. Received: []")
        super().__init__(name="ensemble", dtype=models[0].dtype_policy)
        names = ("source_vocabulary", "vocab_size", "pad_id", "bos_id", "eos_id")
        found = [tuple(getattr(model.config, name) for name in names) for model in models]
        if len(set(found)) > 1:
            raise ValueError(f"The models must have equal {', '.join(names)}. Received: {found}")
        self.models = list(models)
        # The first model, with the smallest number of positions.
        lengths = [model.config.max_length for model in models if model.config.max_length is not None]
        self.config = dataclasses.replace(models[0].config, max_length=min(lengths, default=None))
        self.built = True

    def _members(self):
        """The models."""
        return self.models

    def attention_scores(self, source, target) -> tuple[np.ndarray, ...]:
        """The cross-attention weights of all layers of all models; see `Transformer.attention_scores`."""
        return tuple(scores for model in self.models for scores in model.attention_scores(source, target))
