"""Greedy and beam search over a `next_logits` callable. They know no model.

`next_logits(tokens, cache, offset) -> (logits, cache)` receives the newest token of every row
`(rows, 1)`, the cache, and the position of those tokens; it returns logits `(rows, vocab_size)`.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer.decoding.length_penalty import KINDS, length_penalty

#: The log probability of what cannot be. Finite, since converters to ONNX write a choice between two
#: tensors as a sum of products, in which an infinity that was not chosen becomes NaN.
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
    newest: Any  # int32 (rows, 1): token to feed next
    tokens: Any  # int32 (rows, max_length)
    log_probs: Any  # float32 (rows,): sum over the tokens, unpenalised
    lengths: Any  # int32 (rows,): number of tokens, the end counted
    finished: Any  # bool (rows,)
    cache: Any  # of `next_logits`


@dataclasses.dataclass(frozen=True, kw_only=True)
class GreedySearch:
    """The likeliest token at each step.

    Args:
        extra_length: a hypothesis has at most this many tokens more than its source; at that
            length the end token is forced.

    Raises:
        ValueError: if `extra_length` is negative.
    """

    extra_length: int = 50

    beam_size = 1
    n_best = 1

    def __post_init__(self):
        _check_at_least("extra_length", self.extra_length, 0)

    def search(self, next_logits, cache, limits, max_length, ids: SpecialIds) -> Hypotheses:
        """Runs the search.

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
            token = ops.cast(ops.argmax(logits, axis=-1), "int32")
            token = ops.where(s.step + 1 >= limits, ids.eos, token)
            chosen = ops.take_along_axis(logits, token[:, None], axis=-1)[:, 0]
            log_prob = ops.where(s.finished, 0.0, chosen - ops.logsumexp(logits, axis=-1))
            return _append(s, token, log_prob, cache, ids)

        def unfinished(*state):
            return ops.logical_not(ops.all(_State(*state).finished))

        start = _start(cache, ops.shape(limits)[0], 1, max_length, ids)
        end = _State(*ops.while_loop(unfinished, advance, start, maximum_iterations=max_length))
        return Hypotheses(_trim(end)[:, None], end.log_probs[:, None])


@dataclasses.dataclass(frozen=True, kw_only=True)
class BeamSearch:
    """The best hypotheses by log p / length penalty, `beam_size` of them under way at a time.

    A hypothesis that has ended keeps its place in the beam, frozen, as long as its score is among
    the best. The search of a sentence stops when no unfinished hypothesis can still come among its
    `n_best`: its log probability can only fall, and its penalty is at most that of the limit.

    Args:
        beam_size: hypotheses under way for each sentence.
        length_penalty: α of the length penalty, at least 0.
        length_penalty_kind: `"gnmt"`, ((5 + n) / 6)^α, or `"length"`, n^α.
        extra_length: a hypothesis has at most this many tokens more than its source; at that
            length the end token is forced.
        n_best: hypotheses to return, at most `beam_size`.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:

    >>> BeamSearch(beam_size=4, length_penalty=0.6).n_best
    1

    Reference:
        Vaswani et al. 2017, §6.1: beam 4, α = 0.6, length at most the input's + 50.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    length_penalty_kind: Literal["gnmt", "length"] = "gnmt"
    extra_length: int = 50
    n_best: int = 1

    def __post_init__(self):
        _check_at_least("beam_size", self.beam_size, 1)
        _check_at_least("length_penalty", self.length_penalty, 0)
        _check_at_least("extra_length", self.extra_length, 0)
        _check_at_least("n_best", self.n_best, 1)
        if self.n_best > self.beam_size:
            raise ValueError(
                f"`n_best` must be at most `beam_size`. Received: n_best={self.n_best}, beam_size={self.beam_size}"
            )
        if self.length_penalty_kind not in KINDS:
            raise ValueError(
                f"`length_penalty_kind` must be one of {KINDS}. "
                f"Received: length_penalty_kind={self.length_penalty_kind!r}"
            )

    def search(self, next_logits, cache, limits, max_length, ids: SpecialIds) -> Hypotheses:
        """Runs the search.

        Args:
            next_logits: see the module.
            cache: the cache of `batch * beam_size` rows to begin with; the beams of a sentence are
                consecutive rows.
            limits: int32 `(batch,)`: most tokens of each hypothesis, the end counted.
            max_length: no less than the largest limit; static on JAX.
            ids: the special ids.

        Returns:
            `Hypotheses`.
        """
        row_limits = ops.repeat(limits, self.beam_size, axis=0)

        def advance(*state):
            s = _State(*state)
            logits, cache = next_logits(s.newest, s.cache, s.step)
            tokens, log_probs = self._candidates(s, logits, row_limits, ids)
            rows, token, log_prob = self._select(s, tokens, log_probs)
            s = s._replace(
                tokens=ops.take(s.tokens, rows, axis=0),
                log_probs=ops.take(s.log_probs, rows, axis=0),
                lengths=ops.take(s.lengths, rows, axis=0),
                finished=ops.take(s.finished, rows, axis=0),
            )
            return _append(s, token, log_prob, kv_cache.reorder(cache, rows), ids)

        def improvable(*state):
            return ops.any(self._improvable(_State(*state), row_limits))

        start = _start(cache, ops.shape(limits)[0], self.beam_size, max_length, ids)
        end = _State(*ops.while_loop(improvable, advance, start, maximum_iterations=max_length))
        return self._best(end, ids)

    def _candidates(self, s, logits, row_limits, ids):
        """Each row's best continuations: tokens and their log probabilities, `(rows, width)`."""
        width = min(self.beam_size, logits.shape[-1])
        values, tokens = ops.top_k(logits, width)
        normalizer = ops.logsumexp(ops.cast(logits, "float32"), axis=-1, keepdims=True)
        log_probs = ops.cast(values, "float32") - normalizer
        end_log_prob = ops.cast(logits[:, ids.eos : ids.eos + 1], "float32") - normalizer
        only_first = ops.where(ops.arange(width) == 0, 0.0, IMPOSSIBLE)
        at_limit = (s.step + 1 >= row_limits)[:, None]
        finished = s.finished[:, None]
        tokens = ops.where(finished, ids.pad, ops.where(at_limit, ids.eos, tokens))
        log_probs = ops.where(at_limit, end_log_prob + only_first, log_probs)
        return ops.cast(tokens, "int32"), ops.where(finished, only_first, log_probs)

    def _select(self, s, tokens, log_probs):
        """The `beam_size` best of each sentence's candidates: parent row, token, log probability."""
        width = tokens.shape[-1]
        lengths = s.lengths + ops.cast(ops.logical_not(s.finished), "int32")
        scores = (s.log_probs[:, None] + log_probs) / self._penalty(lengths)[:, None]
        _, best = ops.top_k(ops.reshape(scores, (-1, self.beam_size * width)), self.beam_size)
        first_row = ops.arange(ops.shape(best)[0], dtype="int32")[:, None] * self.beam_size
        chosen = ops.reshape(first_row * width + ops.cast(best, "int32"), (-1,))
        token, log_prob = (ops.take(ops.reshape(x, (-1,)), chosen, axis=0) for x in (tokens, log_probs))
        return chosen // width, token, log_prob

    def _improvable(self, s, row_limits):
        """For each sentence, whether an unfinished hypothesis can still come among the n best."""
        is_live = ops.logical_and(ops.logical_not(s.finished), _is_possible(s))
        reachable = ops.where(is_live, s.log_probs / self._penalty(row_limits), IMPOSSIBLE)
        settled, _ = ops.top_k(self._by_sentence(self._final_scores(s)), self.n_best)
        return ops.max(self._by_sentence(reachable), axis=-1) > settled[:, -1]

    def _best(self, s, ids):
        scores, best = ops.top_k(self._by_sentence(self._final_scores(s)), self.n_best)
        first_row = ops.arange(ops.shape(best)[0], dtype="int32")[:, None] * self.beam_size
        tokens = ops.take(_trim(s), first_row + ops.cast(best, "int32"), axis=0)
        return Hypotheses(ops.where((scores > IMPOSSIBLE)[..., None], tokens, ids.pad), scores)

    def _final_scores(self, s):
        scores = s.log_probs / self._penalty(ops.maximum(s.lengths, 1))
        return ops.where(ops.logical_and(s.finished, _is_possible(s)), scores, IMPOSSIBLE)

    def _penalty(self, lengths):
        return length_penalty(lengths, self.length_penalty, self.length_penalty_kind)

    def _by_sentence(self, x):
        return ops.reshape(x, (-1, self.beam_size))


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


def _check_at_least(name, value, smallest):
    if not value >= smallest:
        raise ValueError(f"`{name}` must be at least {smallest}. Received: {name}={value}")
