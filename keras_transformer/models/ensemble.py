"""Several models that translate together."""

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_transformer.models import teacher_forcing
from keras_transformer.models.seq2seq import Seq2Seq
from keras_transformer.models.transformer import Transformer


class Ensemble(Seq2Seq):
    """Models with one vocabulary that translate together. Each token has the mean of their probabilities.

    An ensemble translates better than each of its models, and takes as long as all of them. It cannot be saved.

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
        names = ("source_vocabulary", "vocab_size", "special_ids", "source")
        found = [(*(getattr(model, name) for name in names[:3]), _described(model.source_spec)) for model in models]
        if len(set(found)) > 1:
            raise ValueError(f"The models must have equal {', '.join(names)}. Received: {found}")
        first = models[0]
        # The first model, with the smallest number of positions.
        lengths = [model.config.max_length for model in models if model.config.max_length is not None]
        self.config = dataclasses.replace(first.config, max_length=min(lengths, default=None))
        super().__init__(
            first.source_spec,
            first.vocab_size,
            first.special_ids,
            self.config.max_length,
            name="ensemble",
            dtype=first.dtype_policy,
        )
        self.models = list(models)
        self.source_vocabulary = first.source_vocabulary
        self.built = True

    def encode(self, source):
        """The memories of all models with their masks, and the mask of the first; see `Transformer.encode`."""
        found = [model.encode(source) for model in self.models]
        # A memory without a mask is a tuple of one.
        return tuple(pair if pair[1] is not None else pair[:1] for pair in found), found[0][1]

    def decode(self, target, memory, memory_mask=None, cache=None, offset=0, output_weights=None):
        """The logits of the mean of the probabilities; see `Transformer.decode`. Each memory has its own mask."""
        models = len(self.models)
        each = zip(self.models, memory, cache or [None] * models, output_weights or [None] * models, strict=True)
        found = [
            model.decode(target, *own, cache=own_cache, offset=offset, output_weights=weights)
            for model, own, own_cache, weights in each
        ]
        if cache is None:
            return _mean(found)
        logits, caches = zip(*found, strict=True)
        return _mean(logits), caches

    def project_memory(self, memory):
        """See `Seq2Seq.project_memory`."""
        pairs = zip(self.models, memory, strict=True)
        return tuple((model.project_memory(own), *mask) for model, (own, *mask) in pairs)

    def empty_cache(self, batch_size, max_length):
        """See `Seq2Seq.empty_cache`."""
        return tuple(model.empty_cache(batch_size, max_length) for model in self.models)

    def step_options(self, candidates=None) -> dict:
        """See `Transformer.step_options`."""
        return {"output_weights": [model.logits.output_weights(candidates) for model in self.models]}

    def attention_scores(self, source, target) -> tuple[np.ndarray, ...]:
        """The cross-attention weights of all layers of all models; see `Transformer.attention_scores`."""
        return tuple(scores for model in self.models for scores in model.attention_scores(source, target))

    def mean_attention(self, source, target) -> np.ndarray:
        """Computes the mean of `attention_scores` over heads, layers and models; see `Transformer.mean_attention`."""
        return teacher_forcing.mean_attention(self.attention_scores(source, target), np.mean)

    def _checked_source(self, source):
        return self.models[0]._checked_source(source)

    def _check_shortlist(self, shortlist, strategy):
        self.models[0]._check_shortlist(shortlist, strategy)

    def _rounded_source(self, source):
        return self.models[0]._rounded_source(source)

    def _source_length(self, source):
        return self.models[0]._source_length(source)


def _described(structure):
    """The shapes and dtypes of a structure of symbolic tensors."""
    return str(keras.tree.map_structure(lambda x: (x.shape, x.dtype), structure))


def _mean(logits):
    """The logits of the mean of the probabilities."""
    if len(logits) == 1:
        return logits[0]
    log_probs = [ops.log_softmax(ops.cast(x, "float32"), axis=-1) for x in logits]
    return ops.logsumexp(ops.stack(log_probs), axis=0)  # (models, rows, vocab_size) -> (rows, vocab_size)
