"""Greedy and beam search over a `next_logits` callable. They know no model.

`next_logits(tokens, cache, offset) -> (logits, cache)` receives the newest token of every row
`(rows, 1)`, the cache, and the position of those tokens; it returns logits `(rows, vocab_size)`.
Padding and the start token are never chosen, whatever their logits.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.strategies import BeamSearch

#: The log probability of what cannot be. Finite, since converters to ONNX write a choice between two
#: tensors as a sum of products, in which an infinity that was not chosen becomes NaN.
IMPOSSIBLE = -1e9

#: The logit of a token that may not be chosen: lower than any real one, and within the range of float16.
_BARRED = -6e4


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
    newest: Any  # int32 (rows, 1): token to feed next
    tokens: Any  # int32 (rows, max_length)
    log_probs: Any  # float32 (rows,): sum over the tokens, unpenalised
    lengths: Any  # int32 (rows,): number of tokens, the end counted
    finished: Any  # bool (rows,)
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
        logits = ops.cast(logits, "float32")
        token = ops.cast(ops.argmax(_choosable(logits, ids), axis=-1), "int32")
        token = ops.where(s.step + 1 >= limits, ids.eos, token)
        chosen = ops.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
        log_prob = ops.where(s.finished, 0.0, chosen - ops.logsumexp(logits, axis=-1))
        return _append(s, token, log_prob, cache, ids)

    def unfinished(*state):
        return ops.logical_not(ops.all(_State(*state).finished))

    start = _start(cache, ops.shape(limits)[0], 1, max_length, ids)
    end = _State(*ops.while_loop(unfinished, advance, start, maximum_iterations=max_length))
    return Hypotheses(_trim(end)[:, None], end.log_probs[:, None])


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
        self.ids = ids

    def search(self, next_logits, cache, max_length):
        def advance(*state):
            s = _State(*state)
            logits, cache = next_logits(s.newest, s.cache, s.step)
            tokens, log_probs = self.candidates(s, logits)
            rows, token, log_prob = self.select(s, tokens, log_probs)
            s = s._replace(
                tokens=ops.take(s.tokens, rows, axis=0),
                log_probs=ops.take(s.log_probs, rows, axis=0),
                lengths=ops.take(s.lengths, rows, axis=0),
                finished=ops.take(s.finished, rows, axis=0),
            )
            return _append(s, token, log_prob, kv_cache.reorder(cache, rows), self.ids)

        def improvable(*state):
            return ops.any(self.improvable(_State(*state)))

        start = _start(cache, self.batch_size, self.beam_size, max_length, self.ids)
        return self.best(_State(*ops.while_loop(improvable, advance, start, maximum_iterations=max_length)))

    def candidates(self, s, logits):
        """Each row's best continuations: tokens and their log probabilities, `(rows, width)`."""
        eos, width = self.ids.eos, min(self.beam_size, logits.shape[-1])
        values, tokens = ops.top_k(_choosable(logits, self.ids), width)
        normalizer = ops.logsumexp(ops.cast(logits, "float32"), axis=-1, keepdims=True)
        values, barred = (ops.cast(x, "float32") for x in (values, ops.cast(_BARRED, logits.dtype)))
        log_probs = ops.where(values > barred, values - normalizer, IMPOSSIBLE)
        end_log_prob = ops.cast(logits[:, eos : eos + 1], "float32") - normalizer
        only_first = ops.where(ops.arange(width) == 0, 0.0, IMPOSSIBLE)
        at_limit = (s.step + 1 >= self.limits)[:, None]
        finished = s.finished[:, None]
        tokens = ops.where(finished, self.ids.pad, ops.where(at_limit, eos, tokens))
        log_probs = ops.where(at_limit, end_log_prob + only_first, log_probs)
        return ops.cast(tokens, "int32"), ops.where(finished, only_first, log_probs)

    def select(self, s, tokens, log_probs):
        """The `beam_size` best of each sentence's candidates: parent row, token, log probability."""
        width = tokens.shape[-1]
        lengths = s.lengths + ops.cast(ops.logical_not(s.finished), "int32")
        scores = (s.log_probs[:, None] + log_probs) / self.penalty(lengths)[:, None]
        _, best = ops.top_k(ops.reshape(scores, (-1, self.beam_size * width)), self.beam_size)
        chosen = ops.reshape(self.first_rows() * width + ops.cast(best, "int32"), (-1,))
        token, log_prob = (ops.take(ops.reshape(x, (-1,)), chosen, axis=0) for x in (tokens, log_probs))
        return chosen // width, token, log_prob

    def improvable(self, s):
        """For each sentence, whether an unfinished hypothesis can still come among the n best."""
        is_live = ops.logical_and(ops.logical_not(s.finished), _is_possible(s))
        reachable = ops.where(is_live, s.log_probs / self.penalty(self.limits), IMPOSSIBLE)
        settled, _ = ops.top_k(self.by_sentence(self.final_scores(s)), self.n_best)
        return ops.max(self.by_sentence(reachable), axis=-1) > settled[:, -1]

    def best(self, s):
        scores, best = ops.top_k(self.by_sentence(self.final_scores(s)), self.n_best)
        tokens = ops.take(_trim(s), self.first_rows() + ops.cast(best, "int32"), axis=0)
        return Hypotheses(ops.where((scores > IMPOSSIBLE)[..., None], tokens, self.ids.pad), scores)

    def final_scores(self, s):
        scores = s.log_probs / self.penalty(ops.maximum(s.lengths, 1))
        return ops.where(ops.logical_and(s.finished, _is_possible(s)), scores, IMPOSSIBLE)

    def penalty(self, lengths):
        return length_penalty(lengths, self.alpha, self.kind)

    def by_sentence(self, x):
        return ops.reshape(x, (-1, self.beam_size))

    def first_rows(self):
        """The first row of each sentence, `(batch, 1)`."""
        return ops.arange(self.batch_size, dtype="int32")[:, None] * self.beam_size


def _start(cache, batch_size, beam_size, max_length, ids):
    """Each sentence begins with one hypothesis; the other rows of its beam are impossible."""
    rows = batch_size * beam_size
    is_first = ops.arange(rows, dtype="int32") % beam_size == 0
    return _State(
        step=ops.zeros((), "int32"),
        newest=ops.full((rows, 1), ids.bos, "int32"),
        tokens=ops.full((rows, max_length), ids.pad, "int32"),
        log_probs=ops.where(is_first, 0.0, IMPOSSIBLE),
        lengths=ops.zeros((rows,), "int32"),
        finished=ops.zeros((rows,), "bool"),
        cache=cache,
    )


def _choosable(logits, ids):
    """The logits without those of padding and the start token."""
    token = ops.arange(logits.shape[-1], dtype="int32")
    is_barred = ops.logical_or(token == ids.pad, token == ids.bos)
    return ops.where(is_barred, ops.cast(_BARRED, logits.dtype), logits)


def _append(s, token, log_prob, cache, ids):
    """The state with one more token in every row that has not ended; elsewhere `log_prob` is 0 or less."""
    token = ops.where(s.finished, ids.pad, token)
    is_here = ops.arange(ops.shape(s.tokens)[1], dtype="int32") == s.step
    return _State(
        step=s.step + 1,
        newest=token[:, None],
        tokens=ops.where(is_here, token[:, None], s.tokens),
        log_probs=s.log_probs + log_prob,
        lengths=s.lengths + ops.cast(ops.logical_not(s.finished), "int32"),
        finished=ops.logical_or(s.finished, token == ids.eos),
        cache=cache,
    )


def _is_possible(s):
    return s.log_probs > 0.5 * IMPOSSIBLE


def _trim(s):
    """The tokens up to the last step made, where shapes may be dynamic."""
    return s.tokens[:, : s.step] if kv_cache.GROWS else s.tokens
