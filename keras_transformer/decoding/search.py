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
NEG_INF = -1e9


class Hypotheses(NamedTuple):
    """What a search found, best first; samples in the order of their drawing."""

    tokens: Any  # int32 (batch, n_best, length): without the start token, with the end, then padding
    scores: Any  # float32 (batch, n_best): log p / length penalty; NEG_INF where there was no further one
    token_scores: Any = ()  # float32 (batch, n_best, length): each token's log p, then 0; () unless asked for


class SpecialIds(NamedTuple):
    """The ids that a search must know."""

    pad: int = 0
    bos: int = 2
    eos: int = 3


class SearchInputs(NamedTuple):
    """What a search is told of its sentences: tensors of a row a sentence."""

    limits: Any  # int32 (batch,): most tokens of each hypothesis, the end counted; at least 1
    prefix: Any = ()  # int32 (batch, prefix_length): how each hypothesis begins, whatever its limit, then padding
    noise: Any = ()  # float32 (batch, n_samples, max_length or more): uniform in [0, 1), one number a token to draw


class State(NamedTuple):
    """Where a search stands. A sentence's hypotheses are consecutive rows."""

    step: Any  # int32 (): number of tokens made so far
    newest: Any  # int32 (rows,): token to feed next; the end or padding in rows that have ended
    history: Any  # int32 (rows, max_length): the tokens; if asked for, float32 (rows, max_length): their log p
    suffixes: Any  # int32 (rows, max_length): what `common_suffixes` says of the tokens; () unless asked for
    values: Any  # float32 (rows,): log p of what is under way, score of what has ended
    cache: Any  # of `next_logits`

    def is_finished(self, ids):
        """Boolean `(rows,)`."""
        return ops.logical_or(self.newest == ids.eos, self.newest == ids.pad)

    def append(self, made, values, cache):
        """The next state: with what was `made`, tensors `(rows,)`, after what the history holds, the token first."""
        is_here = ops.arange(ops.shape(self.history[0])[1], dtype="int32") == self.step
        pairs = zip(made, self.history, strict=True)
        history = tuple(ops.where(is_here, ops.expand_dims(x, 1), old) for x, old in pairs)
        suffixes = self.suffixes
        if not isinstance(suffixes, tuple):
            suffixes = common_suffixes(suffixes, history[0], made[0])
        return State(self.step + 1, made[0], history, suffixes, values, cache)


class ActiveBatch(NamedTuple):
    """What is under way, and what is settled."""

    active: Any  # int32 (active,): which of the batch are under way
    sentences: SearchInputs  # of `active` rows
    memory: Any  # tensors of `active` rows
    state: State
    found: Hypotheses  # of the batch


def run_search(make, next_logits, cache, memory, sentences, max_length, ids: SpecialIds) -> Hypotheses:
    """Runs a search to its end.

    Args:
        make: `make(sentences, ids)` is one of the searches of this folder, over these sentences.
        next_logits: see the module.
        cache: of `batch * beam_size` rows, to begin with; a sentence's rows are consecutive.
        memory: tensors of `batch` rows, in any structure.
        sentences: `SearchInputs`.
        max_length: no less than the largest limit; static on JAX.
        ids: the special ids.

    Returns:
        `Hypotheses`.
    """
    searching = make(sentences, ids)
    batch_size = ops.shape(sentences.limits)[0]
    start = _start(searching, cache, batch_size, max_length)
    if not kv_cache.GROWS:
        return searching.best(_advance(searching, next_logits, memory, start, max_length))

    def is_under_way(*current):
        return ops.shape(ActiveBatch(*current).active)[0] > 0

    def next_round(*current):
        r = ActiveBatch(*current)
        searching = make(r.sentences, ids)
        end = _advance(searching, next_logits, r.memory, r.state, max_length)
        at, new = ops.expand_dims(r.active, 1), searching.best(end)
        found = keras.tree.map_structure(lambda old, new: ops.scatter_update(old, at, new), r.found, new)
        return _keep(r._replace(state=end, found=found), searching.is_active(end), searching.beam_size)

    shape = (batch_size, searching.n_best)
    first = ActiveBatch(
        active=ops.arange(batch_size, dtype="int32"),
        sentences=sentences,
        memory=memory,
        state=start,
        found=_hypotheses(_empty(searching, (*shape, max_length)), ops.full(shape, NEG_INF, "float32")),
    )
    first = _keep(first, sentences.limits > 0, searching.beam_size)  # All; the number of rows is dynamic from here on.
    last = ActiveBatch(*ops.while_loop(is_under_way, next_round, first))
    tokens, scores, token_scores = last.found
    history = (tokens, token_scores) if searching.token_scores else (tokens,)
    return _hypotheses([x[:, :, : last.state.step] for x in history], scores)


def common_suffixes(suffixes, tokens, newest):
    """How many tokens before each place are the same as at the end, in order: after one more token.

    With the tokens 5 6 7 5 6 it is 2 at place 2, for 5 6 stand before it and at the end, and 0 at the others before
    the end. Carried from step to step, this says of n-grams of any length which come again.

    Args:
        suffixes: int32 `(rows, max_length)`, before that token; of no token zeros.
        tokens: int32 `(rows, max_length)`, with it.
        newest: int32 `(rows,)`, the token.

    Returns:
        Int32 `(rows, max_length)`, meaningful at the places of tokens.
    """
    grown = ops.where(tokens == ops.expand_dims(newest, 1), suffixes + 1, 0)
    return ops.concatenate([ops.zeros_like(grown[:, :1]), grown[:, :-1]], axis=1)


def is_possible(values):
    """Whether log probabilities or scores are any hypothesis's."""
    return values > 0.5 * NEG_INF


def _hypotheses(history, scores):
    return Hypotheses(history[0], scores, *history[1:])


def _empty(searching, shape):
    """A history of nothing."""
    tokens = ops.full(shape, searching.ids.pad, "int32")
    return (tokens, ops.zeros(shape, "float32")) if searching.token_scores else (tokens,)


def _start(searching, cache, batch_size, max_length):
    """Each sentence begins with its first hypotheses; its other rows are impossible."""
    rows = batch_size * searching.beam_size
    values = ops.zeros((rows,), "float32")
    if searching.num_first < searching.beam_size:
        is_first = ops.arange(rows, dtype="int32") % searching.beam_size < searching.num_first
        values = ops.where(is_first, 0.0, NEG_INF)
    return State(
        step=ops.zeros((), "int32"),
        newest=ops.full((rows,), searching.ids.bos, "int32"),
        history=_empty(searching, (rows, max_length)),
        suffixes=ops.zeros((rows, max_length), "int32") if searching.ngram_size else (),
        values=values,
        cache=cache,
    )


def _advance(searching, next_logits, memory, state, max_length):
    """Steps until all sentences are settled; with dynamic shapes until a quarter of them are."""

    def step(*state):
        s = State(*state)
        logits, cache = next_logits(s.newest, s.cache, memory, s.step)
        return searching.advance(s, logits, cache)

    def go_on(*state):
        unsettled = searching.is_active(State(*state))
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
        active=taken(r.active, kept),
        sentences=taken(r.sentences, kept),
        memory=taken(r.memory, kept),
        state=State(r.state.step, *taken(tuple(r.state[1:]), rows)),
    )
