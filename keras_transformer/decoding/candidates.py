"""What may follow in each row of a search."""

import keras
from keras import ops

from keras_transformer.decoding.search import NEG_INF, is_possible
from keras_transformer.decoding.top_k import top_k


class Candidates:
    """Base of the searches of this folder: what may follow, and what is forced.

    Its tensors have `rows = batch * beam_size` rows, a sentence's hypotheses together; `num_first` of a
    sentence's rows begin, and `n_best` hypotheses of it are returned.

    Args:
        strategy: one of `strategies.py`.
        sentences: `SearchInputs`.
        ids: `SpecialIds`.
    """

    num_first = 1

    def __init__(self, strategy, sentences, ids):
        self.beam_size, self.n_best = strategy.beam_size, strategy.n_best
        self.min_length, self.ngram_size = strategy.min_length, strategy.no_repeat_ngram_size
        self.token_scores = strategy.token_scores
        self.limits, self.prefix = keras.tree.map_structure(self._of_rows, (sentences.limits, sentences.prefix))
        self.ids = ids

    def candidates(self, s, logits, width):
        """Each row's best continuations, or the one that is forced.

        A row at its limit has but the end, and so has one that may go on with nothing else; one within
        its prefix has but that.

        Args:
            s: `State`.
            logits: `(rows, vocab_size)`.
            width: how many are wanted at least.

        Returns:
            Tokens int32 and log probabilities float32, `(rows, width or more)`, likeliest first but
            for what is impossible; all of a vocabulary that is smaller.
        """
        log_probs = ops.log_softmax(ops.cast(logits, "float32"))
        values, tokens = self._allowed(s, log_probs, width)
        is_over = s.step + 1 >= self.limits
        if self.min_length or self.ngram_size:
            is_over = ops.logical_or(is_over, ops.logical_not(ops.any(is_possible(values), axis=-1)))
        end = log_probs[:, self.ids.eos : self.ids.eos + 1]
        tokens, values = _forced(is_over, self.ids.eos, end, tokens, values)
        if isinstance(self.prefix, tuple):  # There is none.
            return tokens, values
        within = ops.shape(self.prefix)[1]
        token = ops.take(self.prefix, ops.minimum(s.step, within - 1), axis=1)
        is_forced = ops.logical_and(s.step < within, token != self.ids.pad)
        token = ops.expand_dims(token, 1)
        return _forced(is_forced, token, ops.take_along_axis(log_probs, token, axis=-1), tokens, values)

    def _allowed(self, s, log_probs, width):
        """The best continuations, where what is barred is impossible."""
        if self.ngram_size:
            log_probs = without_repeats(log_probs, s.history[0], s.suffixes, s.step, self.ngram_size, self.ids.pad)
        # As many more than wanted as may be barred.
        wanted = width + (3 if self.min_length else 2)
        values, tokens = top_k(log_probs, min(wanted, log_probs.shape[-1]))
        is_barred = ops.logical_or(tokens == self.ids.pad, tokens == self.ids.bos)
        if self.min_length:
            is_early_end = ops.logical_and(tokens == self.ids.eos, s.step < self.min_length)
            is_barred = ops.logical_or(is_barred, is_early_end)
        return ops.where(is_barred, NEG_INF, values), tokens

    def _of_rows(self, x):
        return ops.repeat(x, self.beam_size, axis=0) if self.beam_size > 1 else x


def without_repeats(log_probs, tokens, suffixes, step, size, pad):
    """Log probabilities in which no token is possible that would complete an n-gram for the second time.

    Args:
        log_probs: `(rows, vocab_size)`.
        tokens: int32 `(rows, max_length)`: what was made so far.
        suffixes: int32 `(rows, max_length)`, from `common_suffixes`.
        step: int32 scalar: number of those tokens.
        size: n.
        pad: the id of padding, which is made impossible in any case.

    Returns:
        Of the shape of `log_probs`.
    """
    is_made = ops.arange(ops.shape(tokens)[1], dtype="int32") < step
    is_repeated = ops.logical_and(is_made, suffixes >= size - 1)
    rows = ops.broadcast_to(ops.expand_dims(ops.arange(ops.shape(tokens)[0], dtype="int32"), 1), ops.shape(tokens))
    barred = ops.where(is_repeated, tokens, pad)
    at = ops.stack([ops.reshape(rows, (-1,)), ops.reshape(barred, (-1,))], axis=-1)
    return ops.scatter_update(log_probs, at, ops.full(ops.shape(at)[:1], NEG_INF, log_probs.dtype))


def only_first(width):
    """0, then what makes impossible: float32 `(width,)`."""
    return ops.where(ops.arange(width) == 0, 0.0, NEG_INF)


def _forced(is_forced, token, log_prob, tokens, values):
    """The candidates, in some rows a single one."""
    is_forced = ops.expand_dims(is_forced, 1)
    values = ops.where(is_forced, log_prob + only_first(tokens.shape[-1]), values)
    return ops.where(is_forced, token, tokens), values
