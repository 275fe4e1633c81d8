"""Replay of samples: whether the noise leads to the tokens that another program sampled."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_transformer.decoding import Sampling
from keras_transformer.decoding.greedy import Sampler


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replay(Sampling):
    """A sampling that makes given tokens. The token scores are the distances of the noise from them.

    A token owns an interval of the cumulative distribution. Its distance is that of the noise from the interval, so 0
    if the noise leads to this token, and 1 if the token is not a candidate.

    Args:
        tokens: int32 `(batch, n_samples, length)`: the tokens.
        pad_id: id of padding, which is no candidate.
    """

    tokens: Any = dataclasses.field(default=None, compare=False)
    pad_id: int = 0

    def make_searcher(self, sentences, ids, allowed=None):
        """Makes the search over `sentences`, whose noise contains the tokens."""
        return _Replayer(self, sentences, ids, allowed)

    def noise(self, batch_size, max_length):
        """The noise and the tokens, float32 `(batch_size, n_samples, max_length, 2)`."""
        noise = super().noise(batch_size, max_length)
        tokens = np.full_like(noise, self.pad_id)
        length = min(max_length, self.tokens.shape[2])
        tokens[:, :, :length] = self.tokens[:, :, :length]
        return np.stack([noise, tokens], axis=-1)


class _Replayer(Sampler):
    def __init__(self, strategy, sentences, ids, allowed=None):
        noise, tokens = sentences.noise[..., 0], sentences.noise[..., 1]
        super().__init__(strategy, sentences._replace(noise=noise), ids, allowed)
        self.tokens = ops.cast(ops.reshape(tokens, ops.shape(self.noise)), "int32")

    def choose(self, s, logits):
        """Returns the given token of each row and its distance from the noise, both `(rows,)`."""
        tokens, _, probabilities, cumulative = self.distribution(s, logits)
        given = ops.take(self.tokens, s.step, axis=1)
        is_given = ops.logical_and(tokens == ops.expand_dims(given, 1), probabilities > 0)
        total = cumulative[:, -1]
        upper = ops.sum(ops.where(is_given, cumulative, 0.0), axis=-1) / total
        lower = upper - ops.sum(ops.where(is_given, probabilities, 0.0), axis=-1) / total
        level = ops.take(self.noise, s.step, axis=1)
        distance = ops.maximum(ops.maximum(lower - level, level - upper), 0.0)
        return given, ops.where(ops.any(is_given, axis=-1), distance, 1.0)
