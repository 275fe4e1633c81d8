"""Greedy and beam search over a `next_logits` callable. They know no model.

`next_logits(tokens, cache, offset) -> (logits, cache)` receives the newest token of every row
`(rows,)`, the cache, and the position of those tokens; it returns logits `(rows, vocab_size)`.
Padding and the start token are never chosen, whatever their logits.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.strategies import BeamSearch

#: The log probability, and the score, of what cannot be. Finite, so that it may stand in sums and products.
IMPOSSIBLE = -1e9


class Hypotheses(NamedTuple):
    """What a search found, best first."""

    tokens: Any  # int32 (batch, n_best, length): without the start token, with the end, then padding
    scores: Any  # float32 (batch, n_best): log p / length penalty; IMPOSSIBLE where there was no further one


class SpecialIds(NamedTuple):
    """The ids that a search must know."""

    pad: int = 0
    bos: int = 2
    eos: int = 3


class _State(NamedTuple):
    step: Any  # int32 (): number of tokens made so far
    newest: Any  # int32 (rows,): token to feed next; the end or padding in rows that have ended
    tokens: Any  # int32 (rows, max_length)
    values: Any  # float32 (rows,): log p of what is under way, score of what has ended
    cache: Any  # of `next_logits`


def greedy_search(next_logits, cache, limits, max_length, ids: SpecialIds) -> Hypotheses:
    """The likeliest token at each step.

    Args:
        next_logits: see the module.
        cache: the cache of `batch` rows to begin with.
        limits: int32 `(batch,)`: most tokens of each hypothesis, the end counted.
        max_length: no less than the largest limit; static on JAX.
        ids: the special ids.

    Returns:
        `Hypotheses` with one a row; the score is the log probability.
    """

    def advance(*state):
        s = _State(*state)
        logits, cache = next_logits(s.newest, s.cache, s.step)
        tokens, log_probs = _candidates(logits, 1, s.step + 1 >= limits, ids)
        best = ops.argmax(log_probs, axis=-1, keepdims=True)
        token, log_prob = (ops.take_along_axis(x, best, axis=-1)[:, 0] for x in (tokens, log_probs))
        has_ended = _has_ended(s, ids)
        token = ops.where(has_ended, ids.pad, token)
        return _append(s, token, s.tokens, s.values + ops.where(has_ended, 0.0, log_prob), cache)

    def unfinished(*state):
        return ops.logical_not(ops.all(_has_ended(_State(*state), ids)))

    start = _start(cache, ops.shape(limits)[0], 1, max_length, ids)
    end = _State(*ops.while_loop(unfinished, advance, start, maximum_iterations=max_length))
    return Hypotheses(ops.expand_dims(_trim(end), 1), ops.expand_dims(end.values, 1))


def beam_search(strategy: BeamSearch, next_logits, cache, limits, max_length, ids: SpecialIds) -> Hypotheses:
    """The best hypotheses by log p / length penalty; `BeamSearch` says how.

    Args:
        strategy: the options.
        next_logits: see the module.
        cache: the cache of `batch * beam_size` rows to begin with; the beams of a sentence are
            consecutive rows.
        limits: int32 `(batch,)`: most tokens of each hypothesis, the end counted.
        max_length: no less than the largest limit; static on JAX.
        ids: the special ids.

    Returns:
        `Hypotheses`.
    """
    return _Beams(strategy, limits, ids).search(next_logits, cache, max_length)


class _Beams:
    """One beam search. Its tensors have `rows = batch * beam_size` rows, a sentence's beams together."""

    def __init__(self, strategy, limits, ids):
        self.beam_size, self.n_best = strategy.beam_size, strategy.n_best
        self.alpha, self.kind = strategy.length_penalty, strategy.length_penalty_kind
        self.batch_size = ops.shape(limits)[0]
        self.limits = ops.repeat(limits, self.beam_size, axis=0)  # (rows,)
        self.first_rows = ops.expand_dims(ops.arange(self.batch_size, dtype="int32") * self.beam_size, 1)
        self.ids = ids

    def search(self, next_logits, cache, max_length):
        def advance(*state):
            s = _State(*state)
            logits, cache = next_logits(s.newest, s.cache, s.step)
            tokens, log_probs = _candidates(logits, self.beam_size, s.step + 1 >= self.limits, self.ids)
            rows, token, value = self.select(s, tokens, log_probs)
            return _append(s, token, ops.take(s.tokens, rows, axis=0), value, kv_cache.reorder(cache, rows))

        def improvable(*state):
            return ops.any(self.improvable(_State(*state)))

        start = _start(cache, self.batch_size, self.beam_size, max_length, self.ids)
        return self.best(_State(*ops.while_loop(improvable, advance, start, maximum_iterations=max_length)))

    def select(self, s, tokens, log_probs):
        """The `beam_size` best of each sentence's candidates: parent row, token, value."""
        width = tokens.shape[-1]
        has_ended = ops.expand_dims(_has_ended(s, self.ids), 1)
        value = ops.expand_dims(s.values, 1)
        tokens = ops.where(has_ended, self.ids.pad, tokens)
        # What has ended competes unchanged, as its own first candidate.
        values = value + ops.where(has_ended, _only_first(width), log_probs)
        scores = ops.where(has_ended, values, values / self.penalty(s.step + 1))
        scores = ops.where(_is_possible(values), scores, IMPOSSIBLE)
        best_scores, best = ops.top_k(ops.reshape(scores, (-1, self.beam_size * width)), self.beam_size)
        chosen = ops.reshape(self.first_rows * width + ops.cast(best, "int32"), (-1,))
        token, value = (ops.take(ops.reshape(x, (-1,)), chosen, axis=0) for x in (tokens, values))
        is_end = ops.logical_or(token == self.ids.eos, token == self.ids.pad)
        return chosen // width, token, ops.where(is_end, ops.reshape(best_scores, (-1,)), value)

    def improvable(self, s):
        """For each sentence, whether a hypothesis under way can still come among the n best."""
        is_live = ops.logical_and(ops.logical_not(_has_ended(s, self.ids)), _is_possible(s.values))
        reachable = ops.where(is_live, s.values / self.penalty(self.limits), IMPOSSIBLE)
        settled, _ = ops.top_k(self.final_scores(s), self.n_best)
        return ops.max(self.by_sentence(reachable), axis=-1) > settled[:, -1]

    def best(self, s):
        scores, best = ops.top_k(self.final_scores(s), self.n_best)
        tokens = ops.take(_trim(s), self.first_rows + ops.cast(best, "int32"), axis=0)
        is_possible = _is_possible(scores)
        tokens = ops.where(ops.expand_dims(is_possible, -1), tokens, self.ids.pad)
        return Hypotheses(tokens, ops.where(is_possible, scores, IMPOSSIBLE))

    def final_scores(self, s):
        """The scores of what has ended, `(batch, beam_size)`."""
        return self.by_sentence(ops.where(_has_ended(s, self.ids), s.values, IMPOSSIBLE))

    def penalty(self, lengths):
        return length_penalty(lengths, self.alpha, self.kind)

    def by_sentence(self, x):
        return ops.reshape(x, (-1, self.beam_size))


def _candidates(logits, width, at_limit, ids):
    """Each row's `width` best continuations or more, in some order: tokens and log probabilities."""
    log_probs = ops.log_softmax(ops.cast(logits, "float32"))
    # Two more than wanted, since padding and the start may be among them.
    values, tokens = ops.top_k(log_probs, min(width + 2, logits.shape[-1]))
    tokens = ops.cast(tokens, "int32")
    is_barred = ops.logical_or(tokens == ids.pad, tokens == ids.bos)
    at_limit = ops.expand_dims(at_limit, 1)
    end = log_probs[:, ids.eos : ids.eos + 1] + _only_first(tokens.shape[-1])
    values = ops.where(at_limit, end, ops.where(is_barred, IMPOSSIBLE, values))
    return ops.where(at_limit, ids.eos, tokens), values


def _only_first(width):
    """0, then what makes impossible, `(width,)`."""
    return ops.where(ops.arange(width) == 0, 0.0, IMPOSSIBLE)


def _start(cache, batch_size, beam_size, max_length, ids):
    """Each sentence begins with one hypothesis; the other rows of its beam are impossible."""
    rows = batch_size * beam_size
    is_first = ops.arange(rows, dtype="int32") % beam_size == 0
    return _State(
        step=ops.zeros((), "int32"),
        newest=ops.full((rows,), ids.bos, "int32"),
        tokens=ops.full((rows, max_length), ids.pad, "int32"),
        values=ops.where(is_first, 0.0, IMPOSSIBLE),
        cache=cache,
    )


def _append(s, token, tokens, values, cache):
    """The next state, with one more token in every row."""
    is_here = ops.arange(ops.shape(tokens)[1], dtype="int32") == s.step
    tokens = ops.where(is_here, ops.expand_dims(token, 1), tokens)
    return _State(step=s.step + 1, newest=token, tokens=tokens, values=values, cache=cache)


def _has_ended(s, ids):
    return ops.logical_or(s.newest == ids.eos, s.newest == ids.pad)


def _is_possible(values):
    return values > 0.5 * IMPOSSIBLE


def _trim(s):
    """The tokens up to the last step made, where shapes may be dynamic."""
    return s.tokens[:, : s.step] if kv_cache.GROWS else s.tokens
