"""Greedy search."""

from keras import ops

from keras_transformer.decoding.search import Hypotheses, candidates


class Greedy:
    """The likeliest token at each step; the score is the log probability.

    Args:
        limits: int32 `(batch,)`: most tokens of each hypothesis, the end counted.
        ids: `SpecialIds`.
    """

    beam_size = 1
    n_best = 1

    def __init__(self, limits, ids):
        self.limits = limits
        self.ids = ids

    def advance(self, s, logits, cache):
        """The state after one more token in every row."""
        tokens, log_probs = candidates(logits, 1, s.step + 1 >= self.limits, self.ids)
        best = ops.argmax(log_probs, axis=-1, keepdims=True)
        token, log_prob = (ops.take_along_axis(x, best, axis=-1)[:, 0] for x in (tokens, log_probs))
        has_ended = s.has_ended(self.ids)
        token = ops.where(has_ended, self.ids.pad, token)
        return s.append(token, s.tokens, s.values + ops.where(has_ended, 0.0, log_prob), cache)

    def is_unsettled(self, s):
        """Boolean `(batch,)`: which sentences are under way."""
        return ops.logical_not(s.has_ended(self.ids))

    def best(self, s):
        """`Hypotheses`, one a sentence."""
        return Hypotheses(ops.expand_dims(s.tokens, 1), ops.expand_dims(s.values, 1))
