"""The candidate tokens of the next step of a search, for all searches."""

import keras
from keras import ops

from keras_transformer.decoding.logits import places, processed
from keras_transformer.decoding.search import NEG_INF, is_possible
from keras_transformer.decoding.top_k import top_k


class Searcher:
    """Base class of the searches. It computes the candidate tokens, including forced ones.

    Tensors have `rows = batch * beam_size` rows; the hypotheses of a sentence are consecutive rows. At the start
    `num_first` rows of each sentence are active. The search returns `n_best` hypotheses per sentence.

    Args:
        strategy: a `GreedySearch`, `BeamSearch` or `Sampling`.
        sentences: the `SearchInputs`.
        ids: the `SpecialIds`.
        allowed: the `AllowedTokens`. Default: every token except padding and BOS is allowed.
    """

    num_first = 1

    def __init__(self, strategy, sentences, ids, allowed=None):
        self.beam_size, self.n_best = strategy.beam_size, strategy.n_best
        self.min_length, self.ngram_size = strategy.min_length, strategy.no_repeat_ngram_size
        self.strategy, self.token_scores = strategy, strategy.token_scores
        self.limits, self.prefix = keras.tree.map_structure(self.repeated, (sentences.limits, sentences.prefix))
        self.ids, self.allowed = ids, allowed

    def candidates(self, s, logits, width):
        """The candidate tokens of each row, int32, and their log probabilities: both `(rows, width or more)`.

        Within a prefix only the prefix token is allowed. At the length limit, or if no other token is allowed, only
        EOS is allowed. The order is descending, except for the `NEG_INF` of candidates that are not allowed.
        """
        logits, is_allowed = processed(self.strategy, ops.cast(logits, "float32"), s.history[0], s.step)
        log_probs = ops.log_softmax(logits)
        kept = log_probs if is_allowed is None else ops.where(is_allowed, log_probs, NEG_INF)
        values, tokens = self._allowed(s, kept, width)
        is_over = s.step + 1 >= self.limits
        if self.min_length or self.ngram_size or is_allowed is not None:
            is_over = ops.logical_or(is_over, ops.logical_not(ops.any(is_possible(values), axis=-1)))
        end = log_probs[:, self.ids.eos : self.ids.eos + 1]
        tokens, values = _forced(is_over, self.ids.eos, end, tokens, values)
        if isinstance(self.prefix, tuple):  # No prefix.
            return tokens, values
        within = ops.shape(self.prefix)[1]
        token = ops.take(self.prefix, ops.minimum(s.step, within - 1), axis=1)
        is_forced = ops.logical_and(s.step < within, token != self.ids.pad)
        token = ops.expand_dims(token, 1)
        return _forced(is_forced, token, ops.take_along_axis(log_probs, token, axis=-1), tokens, values)

    def _allowed(self, s, log_probs, width):
        """The best candidates, with `NEG_INF` for those that are not allowed."""
        # Extra candidates, because padding, BOS and, with `min_length`, EOS may be among them but are not allowed.
        wanted = width + (3 if self.min_length else 2)
        # A shortlist has a dynamic number of candidates, which is larger.
        values, tokens = self._likeliest(s, log_probs, min(wanted, log_probs.shape[-1] or wanted))
        is_barred = ops.logical_or(tokens == self.ids.pad, tokens == self.ids.bos)
        if self.min_length:
            is_early_end = ops.logical_and(tokens == self.ids.eos, s.step < self.min_length)
            is_barred = ops.logical_or(is_barred, is_early_end)
        return ops.where(is_barred, NEG_INF, values), tokens

    def _likeliest(self, s, log_probs, count):
        """The log probabilities and ids of the `count` likeliest tokens, without those that `allowed` forbids."""
        kept = log_probs
        if self.ngram_size:
            kept = without_repeats(log_probs, s.history[0], s.suffixes, s.step, self.ngram_size, self.ids.pad)
        constraints = self.allowed
        if constraints is None:
            return top_k(kept, count)

        def allowed():
            return top_k(constraints.masked(log_probs, kept, s, self.limits), count)

        if count == log_probs.shape[-1]:
            return allowed()
        found = top_k(kept, count)
        # A loop of at most one pass. `ops.cond` would lose shapes in ONNX.
        values, tokens, _ = ops.while_loop(
            lambda values, tokens, may_forbid: may_forbid,
            lambda values, tokens, may_forbid: (*allowed(), ops.logical_not(may_forbid)),
            (*found, constraints.may_forbid(s.newest, found[1])),
            maximum_iterations=1,
        )
        return values, tokens

    def repeated(self, x):
        """Repeats the row of each sentence for each of its hypotheses."""
        return ops.repeat(x, self.beam_size, axis=0) if self.beam_size > 1 else x


def without_repeats(log_probs, tokens, suffixes, step, size, pad):
    """Masks the tokens that would complete an n-gram of `size` tokens for the second time, and padding.

    Args:
        log_probs: `(rows, vocab_size)`.
        tokens: int32 `(rows, max_length)`, tokens generated so far.
        suffixes: int32 `(rows, max_length)`, from `common_suffixes`.
        step: int32 scalar, number of tokens generated so far.
        size: length n of the n-grams.
        pad: id of the padding token.
    """
    is_made = ops.arange(ops.shape(tokens)[1], dtype="int32") < step
    is_repeated = ops.logical_and(is_made, suffixes >= size - 1)
    at = places(ops.where(is_repeated, tokens, pad))  # (rows * max_length, 2)
    return ops.scatter_update(log_probs, at, ops.full(ops.shape(at)[:1], NEG_INF, log_probs.dtype))


def only_first(width):
    """Float32 `(width,)`: 0 for the first candidate and `NEG_INF` for the others."""
    return ops.where(ops.arange(width) == 0, 0.0, NEG_INF)


def _forced(is_forced, token, log_prob, tokens, values):
    """Replaces the candidates by one token in the rows where `is_forced`."""
    is_forced = ops.expand_dims(is_forced, 1)
    values = ops.where(is_forced, log_prob + only_first(tokens.shape[-1]), values)
    return ops.where(is_forced, token, tokens), values
