"""Greedy search, and sampling, which differs from it in the choice alone."""

from keras import ops

from keras_transformer.decoding.candidates import Candidates
from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.search import Hypotheses, is_possible


class Greedy(Candidates):
    """The likeliest token at each step.

    Args:
        strategy: `GreedySearch`, or `BeamSearch` with a beam of one, whose penalty counts in the score.
        sentences: `SearchInputs`.
        ids: `SpecialIds`.
    """

    def __init__(self, strategy, sentences, ids):
        super().__init__(strategy, sentences, ids)
        self.alpha, self.kind = strategy.length_penalty, strategy.length_penalty_kind

    def advance(self, s, logits, cache):
        """The state after one more token in every row."""
        token, log_prob = self.choose(s, logits)
        is_finished = s.is_finished(self.ids)
        token = ops.where(is_finished, self.ids.pad, token)
        log_prob = ops.where(is_finished, 0.0, log_prob)
        made = (token, log_prob) if self.token_scores else (token,)
        return s.append(made, s.values + log_prob, cache)

    def choose(self, s, logits):
        """The next token of each row and its log probability, `(rows,)`."""
        tokens, log_probs = self.candidates(s, logits, 1)
        best_log_prob, best = ops.top_k(log_probs, 1)  # `argmax` has no ONNX equivalent on TensorFlow.
        is_best = ops.arange(tokens.shape[-1], dtype="int32") == ops.cast(best, "int32")
        # A sum, since `take_along_axis` is fifteen operators in ONNX.
        return ops.sum(ops.where(is_best, tokens, 0), axis=-1), best_log_prob[:, 0]

    def is_active(self, s):
        """Boolean `(batch,)`: which sentences are under way."""
        return ops.logical_not(s.is_finished(self.ids))

    def best(self, s):
        """`Hypotheses`, one a sentence."""
        scores = s.values
        if self.alpha:
            lengths = ops.sum(ops.cast(s.history[0] != self.ids.pad, "int32"), axis=-1)
            scores = scores / length_penalty(lengths, self.alpha, self.kind)
        tokens, *token_scores = (ops.expand_dims(x, 1) for x in s.history)
        return Hypotheses(tokens, ops.expand_dims(scores, 1), *token_scores)


class Sampler(Greedy):
    """Tokens drawn from the tempered and truncated distribution; `Sampling` says how.

    Args:
        strategy: `Sampling`.
        sentences: `SearchInputs`, with noise.
        ids: `SpecialIds`.
    """

    def __init__(self, strategy, sentences, ids):
        super().__init__(strategy, sentences, ids)
        self.num_first = self.beam_size
        self.top_k, self.top_p, self.temperature = strategy.top_k, strategy.top_p, strategy.temperature
        self.noise = ops.reshape(sentences.noise, (-1, ops.shape(sentences.noise)[2]))

    def choose(self, s, logits):
        """The drawn token of each row and its log probability under the model, `(rows,)`."""
        tokens, log_probs = self.candidates(s, logits, self.top_k or logits.shape[-1])
        probabilities = self._truncated(log_probs)
        cumulative = ops.cumsum(probabilities, axis=-1)
        level = ops.expand_dims(ops.take(self.noise, s.step, axis=1), 1) * cumulative[:, -1:]
        # The first whose cumulative probability exceeds the noise's share; whatever the rounding, a kept one.
        rank = ops.where(probabilities > 0, 1.0 + ops.cast(cumulative > level, "float32"), 0.0)
        drawn = ops.argmax(rank, axis=-1, keepdims=True)  # The first of equals, which `top_k` does not promise.
        return (ops.take_along_axis(x, drawn, axis=-1)[:, 0] for x in (tokens, log_probs))

    def is_active(self, s):
        """Boolean `(batch,)`: of which sentences a sample is under way."""
        return ops.any(ops.reshape(super().is_active(s), (-1, self.beam_size)), axis=-1)

    def best(self, s):
        """`Hypotheses`, `n_samples` a sentence."""
        found = super().best(s)
        by_sentence = (
            ops.reshape(x, (-1, self.beam_size, *ops.shape(x)[2:])) for x in found if not isinstance(x, tuple)
        )
        return Hypotheses(*by_sentence)

    def _truncated(self, log_probs):
        """Probabilities of candidates, likeliest first; 0 outside `top_k` and `top_p`. They need not sum to 1."""
        is_kept = is_possible(log_probs)
        if self.top_k:
            is_kept = ops.logical_and(is_kept, ops.cumsum(ops.cast(is_kept, "int32"), axis=-1) <= self.top_k)
        probabilities = ops.where(is_kept, ops.softmax(log_probs / self.temperature, axis=-1), 0.0)
        if self.top_p < 1.0:
            cumulative = ops.cumsum(probabilities, axis=-1)
            before = (cumulative - probabilities) / cumulative[:, -1:]
            probabilities = ops.where(before < self.top_p, probabilities, 0.0)
        return probabilities
