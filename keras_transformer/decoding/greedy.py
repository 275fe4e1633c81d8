"""Greedy search and sampling, which share the search step and differ in the choice of the next token."""

from keras import ops

from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.search import Hypotheses, is_possible
from keras_transformer.decoding.searcher import Searcher


class Greedy(Searcher):
    """The search of `GreedySearch` and, with one beam, of `BeamSearch`. A length penalty changes only the scores."""

    def __init__(self, strategy, sentences, ids, allowed=None):
        super().__init__(strategy, sentences, ids, allowed)
        self.alpha, self.kind = strategy.length_penalty, strategy.length_penalty_kind

    def advance(self, s, logits, cache):
        """Returns the state after one more token per row."""
        token, log_prob = self.choose(s, logits)
        is_finished = s.is_finished(self.ids)
        token = ops.where(is_finished, self.ids.pad, token)
        log_prob = ops.where(is_finished, 0.0, log_prob)
        made = (token, log_prob) if self.token_scores else (token,)
        return s.append(made, s.values + log_prob, cache)

    def choose(self, s, logits):
        """Returns the next token of each row and its log probability, both `(rows,)`."""
        tokens, log_probs = self.candidates(s, logits, 1)
        # Not `ops.argmax`: for floats it tests the sign bit on TensorFlow, which has no ONNX equivalent.
        best_log_prob, best = ops.top_k(log_probs, 1)
        return _at(tokens, ops.cast(best, "int32")), best_log_prob[:, 0]

    def is_active(self, s):
        """Boolean `(batch,)`: whether a sentence is unfinished."""
        return ops.logical_not(s.is_finished(self.ids))

    def best(self, s):
        """Returns the `Hypotheses`, one per sentence."""
        scores = s.values
        if self.alpha:
            lengths = ops.sum(ops.cast(s.history[0] != self.ids.pad, "int32"), axis=-1)
            scores = scores / length_penalty(lengths, self.alpha, self.kind)
        tokens, *token_scores = (ops.expand_dims(x, 1) for x in s.history)  # (rows, 1, max_length)
        return Hypotheses(tokens, ops.expand_dims(scores, 1), *token_scores)


class Sampler(Greedy):
    """Sampling from the truncated distribution with temperature; see `Sampling`. The `sentences` have `noise`."""

    def __init__(self, strategy, sentences, ids, allowed=None):
        super().__init__(strategy, sentences, ids, allowed)
        self.num_first = self.beam_size
        self.top_k, self.top_p, self.temperature = strategy.top_k, strategy.top_p, strategy.temperature
        # (batch, n_samples, max_length) -> (rows, max_length)
        self.noise = ops.reshape(sentences.noise, (-1, ops.shape(sentences.noise)[2]))

    def choose(self, s, logits):
        """Returns a sampled token per row and its log probability under the model, both `(rows,)`."""
        tokens, log_probs, probabilities, cumulative = self.distribution(s, logits)
        level = ops.expand_dims(ops.take(self.noise, s.step, axis=1), 1) * cumulative[:, -1:]
        # The first candidate whose cumulative probability exceeds `level`; if rounding leaves none, the first one.
        place, width = ops.arange(ops.shape(tokens)[1], dtype="int32"), ops.shape(tokens)[1]
        order = ops.where(cumulative > level, place, place + width)
        order = ops.where(probabilities > 0, order, place + 2 * width)
        drawn = ops.min(order, axis=-1, keepdims=True) % width
        return _at(tokens, drawn), _at(log_probs, drawn)

    def distribution(self, s, logits):
        """The candidates: tokens, log probabilities, truncated and cumulative probabilities, all `(rows, width)`."""
        tokens, log_probs = self.candidates(s, logits, self.top_k or logits.shape[-1])
        probabilities = self._truncated(log_probs)
        return tokens, log_probs, probabilities, ops.cumsum(probabilities, axis=-1)

    def is_active(self, s):
        """Boolean `(batch,)`: whether a sentence has unfinished samples."""
        is_active = ops.reshape(super().is_active(s), (-1, self.beam_size))  # (batch, n_samples)
        return ops.any(is_active, axis=-1)

    def best(self, s):
        """Returns the `Hypotheses`, `n_samples` per sentence."""
        found = super().best(s)  # Each (rows, 1, …); below (batch, n_samples, …).
        by_sentence = (
            ops.reshape(x, (-1, self.beam_size, *ops.shape(x)[2:])) for x in found if not isinstance(x, tuple)
        )
        return Hypotheses(*by_sentence)

    def _truncated(self, log_probs):
        """Probabilities of the candidates in descending order, not normalized; 0 outside `top_k` and `top_p`."""
        is_kept = is_possible(log_probs)
        if self.top_k:
            is_kept = ops.logical_and(is_kept, ops.cumsum(ops.cast(is_kept, "int32"), axis=-1) <= self.top_k)
        probabilities = ops.where(is_kept, ops.softmax(log_probs / self.temperature, axis=-1), 0.0)
        if self.top_p < 1.0:
            cumulative = ops.cumsum(probabilities, axis=-1)
            before = (cumulative - probabilities) / cumulative[:, -1:]
            probabilities = ops.where(before < self.top_p, probabilities, 0.0)
        return probabilities


def _at(x, place):
    """The values `(rows,)` of `x`, `(rows, width)`, at the places `(rows, 1)`."""
    # `take_along_axis` would become fifteen ONNX operators.
    is_there = ops.arange(ops.shape(x)[1], dtype="int32") == place
    return ops.sum(ops.where(is_there, x, ops.zeros_like(x)), axis=-1)
