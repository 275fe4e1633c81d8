"""Beam search."""

import keras
from keras import ops

from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.search import NEG_INF, Hypotheses, is_possible
from keras_transformer.decoding.searcher import Searcher, only_first


class Beams(Searcher):
    """Beam search by log probability / length penalty; see `BeamSearch`."""

    def __init__(self, strategy, sentences, ids, allowed=None):
        super().__init__(strategy, sentences, ids, allowed)
        self.alpha, self.kind = strategy.length_penalty, strategy.length_penalty_kind
        batch = ops.arange(ops.shape(sentences.limits)[0], dtype="int32")
        self.first_rows = ops.expand_dims(batch * self.beam_size, 1)

    def advance(self, s, logits, cache):
        """Returns the state after one more token per row. Each new row continues one of the best old rows."""
        tokens, log_probs = self.candidates(s, logits, self.beam_size)
        rows, made, values = self._select(s, tokens, log_probs)
        history, suffixes, cache = self._reordered((s.history, s.suffixes, cache), rows)
        return s._replace(history=history, suffixes=suffixes).append(made, values, cache)

    @staticmethod
    def _reordered(tensors, rows):
        return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0), tensors)

    def is_active(self, s):
        """Boolean `(batch,)`: whether an unfinished hypothesis can still reach the `n_best` of its sentence."""
        is_live = ops.logical_and(ops.logical_not(s.is_finished(self.ids)), is_possible(s.values))
        reachable = ops.where(is_live, s.values / self._penalty(self.limits), NEG_INF)
        finished, _ = ops.top_k(self._final_scores(s), self.n_best)
        return ops.max(self._by_sentence(reachable), axis=-1) > finished[:, -1]

    def best(self, s):
        """Returns the `Hypotheses`, `n_best` per sentence."""
        scores, best = ops.top_k(self._final_scores(s), self.n_best)
        rows = self.first_rows + ops.cast(best, "int32")
        exists = is_possible(scores)
        tokens, *token_scores = (
            ops.where(ops.expand_dims(exists, -1), ops.take(x, rows, axis=0), nothing)
            for x, nothing in zip(s.history, (self.ids.pad, 0.0), strict=False)
        )
        return Hypotheses(tokens, ops.where(exists, scores, NEG_INF), *token_scores)

    def _select(self, s, tokens, log_probs):
        """Selects the `beam_size` best candidates of each sentence.

        Returns the parent row, the token (with its log probability if `token_scores`) and the value of each candidate.
        """
        width = tokens.shape[-1]
        is_finished = ops.expand_dims(s.is_finished(self.ids), 1)
        value = ops.expand_dims(s.values, 1)
        tokens = ops.where(is_finished, self.ids.pad, tokens)
        # A finished hypothesis has one candidate: itself, with an unchanged score.
        values = value + ops.where(is_finished, only_first(width), log_probs)
        scores = ops.where(is_finished, values, values / self._penalty(s.step + 1))
        scores = ops.where(is_possible(values), scores, NEG_INF)
        # (rows, width) -> (batch, beam_size * width): the candidates of a sentence compete.
        best_scores, best = ops.top_k(ops.reshape(scores, (-1, self.beam_size * width)), self.beam_size)
        # (batch, beam_size) -> (rows,): places in the flattened (rows, width) candidates.
        chosen = ops.reshape(self.first_rows * width + ops.cast(best, "int32"), (-1,))
        made = (tokens, ops.where(is_finished, 0.0, log_probs)) if self.token_scores else (tokens,)
        token, *log_prob, value = (ops.take(ops.reshape(x, (-1,)), chosen, axis=0) for x in (*made, values))
        is_end = ops.logical_or(token == self.ids.eos, token == self.ids.pad)
        return chosen // width, (token, *log_prob), ops.where(is_end, ops.reshape(best_scores, (-1,)), value)

    def _final_scores(self, s):
        """Scores of finished hypotheses, `(batch, beam_size)`; `NEG_INF` for unfinished ones."""
        return self._by_sentence(ops.where(s.is_finished(self.ids), s.values, NEG_INF))

    def _penalty(self, lengths):
        return length_penalty(lengths, self.alpha, self.kind)

    def _by_sentence(self, x):
        return ops.reshape(x, (-1, self.beam_size))  # (rows,) -> (batch, beam_size)
