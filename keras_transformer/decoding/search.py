"""The loop of a search, over a `next_logits` callable. It knows no model, and no strategy.

`next_logits(tokens, cache, memory, offset) -> (logits, cache)` receives the newest token of every row
`(rows,)`, the cache (tensors of as many rows), the memory (tensors of a row a sentence, which a search
hands on), and the position of those tokens; it returns logits `(rows, vocab_size)`.

Sentences finish at unlike times. Where shapes may be dynamic, the search goes in rounds: once a
quarter of the sentences under way are settled, they are put aside, and the next round goes on with
the others alone.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer import cache as kv_cache

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


class State(NamedTuple):
    """Where a search stands. A sentence's hypotheses are consecutive rows."""

    step: Any  # int32 (): number of tokens made so far
    newest: Any  # int32 (rows,): token to feed next; the end or padding in rows that have ended
    tokens: Any  # int32 (rows, max_length)
    values: Any  # float32 (rows,): log p of what is under way, score of what has ended
    cache: Any  # of `next_logits`

    def has_ended(self, ids):
        """Boolean `(rows,)`."""
        return ops.logical_or(self.newest == ids.eos, self.newest == ids.pad)

    def append(self, token, tokens, values, cache):
        """The next state: with `token` `(rows,)` after what `tokens` holds."""
        is_here = ops.arange(ops.shape(tokens)[1], dtype="int32") == self.step
        tokens = ops.where(is_here, ops.expand_dims(token, 1), tokens)
        return State(self.step + 1, token, tokens, values, cache)


class _Round(NamedTuple):
    """What is under way, and what is settled."""

    sentences: Any  # int32 (active,): which of the batch are under way
    limits: Any  # int32 (active,)
    memory: Any  # tensors of `active` rows
    state: State
    tokens: Any  # int32 (batch, n_best, max_length)
    scores: Any  # float32 (batch, n_best)


def run_search(make, next_logits, cache, memory, limits, max_length, ids: SpecialIds) -> Hypotheses:
    """Runs a search to its end.

    Args:
        make: `make(limits, ids)` is one of the searches of this folder, over so many sentences.
        next_logits: see the module.
        cache: of `batch * beam_size` rows, to begin with; a sentence's rows are consecutive.
        memory: tensors of `batch` rows, in any structure.
        limits: int32 `(batch,)`: most tokens of each hypothesis, the end counted; at least 1.
        max_length: no less than the largest limit; static on JAX.
        ids: the special ids.

    Returns:
        `Hypotheses`.
    """
    searching = make(limits, ids)
    start = _start(cache, ops.shape(limits)[0], searching.beam_size, max_length, ids)
    if not kv_cache.GROWS:
        return searching.best(_advance(searching, next_logits, memory, start, max_length))

    def is_under_way(*current):
        return ops.shape(_Round(*current).sentences)[0] > 0

    def next_round(*current):
        r = _Round(*current)
        searching = make(r.limits, ids)
        end = _advance(searching, next_logits, r.memory, r.state, max_length)
        found, at = searching.best(end), ops.expand_dims(r.sentences, 1)
        tokens, scores = (ops.scatter_update(*x) for x in ((r.tokens, at, found.tokens), (r.scores, at, found.scores)))
        r = r._replace(state=end, tokens=tokens, scores=scores)
        return _keep(r, searching.is_unsettled(end), searching.beam_size)

    shape = (ops.shape(limits)[0], searching.n_best)
    first = _Round(
        sentences=ops.arange(shape[0], dtype="int32"),
        limits=limits,
        memory=memory,
        state=start,
        tokens=ops.full((*shape, max_length), ids.pad, "int32"),
        scores=ops.full(shape, IMPOSSIBLE, "float32"),
    )
    first = _keep(first, limits > 0, searching.beam_size)  # All; the number of rows is dynamic from here on.
    last = _Round(*ops.while_loop(is_under_way, next_round, first))
    return Hypotheses(last.tokens[:, :, : last.state.step], last.scores)


def candidates(logits, width, at_limit, ids):
    """Each row's best continuations; at its limit only the end.

    Args:
        logits: `(rows, vocab_size)`.
        width: how many are wanted at least.
        at_limit: boolean `(rows,)`.
        ids: the special ids; padding and the start are impossible.

    Returns:
        Tokens int32 and log probabilities float32, `(rows, width or more)` in some order; all of a
        vocabulary that is smaller.
    """
    log_probs = ops.log_softmax(ops.cast(logits, "float32"))
    # Two more than wanted, since padding and the start may be among them.
    values, tokens = ops.top_k(log_probs, min(width + 2, logits.shape[-1]))
    tokens = ops.cast(tokens, "int32")
    is_barred = ops.logical_or(tokens == ids.pad, tokens == ids.bos)
    at_limit = ops.expand_dims(at_limit, 1)
    end = log_probs[:, ids.eos : ids.eos + 1] + only_first(tokens.shape[-1])
    values = ops.where(at_limit, end, ops.where(is_barred, IMPOSSIBLE, values))
    return ops.where(at_limit, ids.eos, tokens), values


def only_first(width):
    """0, then what makes impossible: float32 `(width,)`."""
    return ops.where(ops.arange(width) == 0, 0.0, IMPOSSIBLE)


def is_possible(values):
    """Whether log probabilities or scores are any hypothesis's."""
    return values > 0.5 * IMPOSSIBLE


def _start(cache, batch_size, beam_size, max_length, ids):
    """Each sentence begins with one hypothesis; its other rows are impossible."""
    rows = batch_size * beam_size
    is_first = ops.arange(rows, dtype="int32") % beam_size == 0
    return State(
        step=ops.zeros((), "int32"),
        newest=ops.full((rows,), ids.bos, "int32"),
        tokens=ops.full((rows, max_length), ids.pad, "int32"),
        values=ops.where(is_first, 0.0, IMPOSSIBLE),
        cache=cache,
    )


def _advance(searching, next_logits, memory, state, max_length):
    """Steps until all sentences are settled; with dynamic shapes until a quarter of them are."""

    def step(*state):
        s = State(*state)
        logits, cache = next_logits(s.newest, s.cache, memory, s.step)
        return searching.advance(s, logits, cache)

    def go_on(*state):
        unsettled = searching.is_unsettled(State(*state))
        if not kv_cache.GROWS:
            return ops.any(unsettled)
        return 4 * ops.sum(ops.cast(unsettled, "int32")) > 3 * ops.shape(unsettled)[0]

    return State(*ops.while_loop(go_on, step, state, maximum_iterations=max_length))


def _keep(r, is_kept, beam_size):
    """The round with some of its sentences."""
    kept = ops.nonzero(is_kept)[0]
    rows = ops.reshape(ops.expand_dims(kept * beam_size, 1) + ops.arange(beam_size, dtype=kept.dtype), (-1,))

    def taken(tensors, at):
        return keras.tree.map_structure(lambda x: ops.take(x, at, axis=0), tensors)

    return r._replace(
        sentences=taken(r.sentences, kept),
        limits=taken(r.limits, kept),
        memory=taken(r.memory, kept),
        state=State(r.state.step, *taken(r.state[1:], rows)),
    )
