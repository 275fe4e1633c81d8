"""The search loop, independent of model and strategy.

The model is a callable `next_logits(tokens, cache, memory, offset) -> (logits, cache)`. It receives the newest tokens
`(rows,)`, the cache with `rows` rows, the memory with one row per sentence, and the position of the tokens. It returns
logits `(rows, vocab_size)` and the updated cache.

If shapes may be dynamic, finished sentences are removed from the batch: whenever a quarter of the active sentences
have finished, the search continues with the others only.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer import cache as kv_cache
from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
from keras_transformer.decoding.scores import NEG_INF


class Hypotheses(NamedTuple):
    """The result of a search: hypotheses with the best first, or samples in the order of sampling.

    Attributes:
        tokens: int32 `(batch, n_best, length)`: without the start token, with the end token, then padding.
        scores: float32 `(batch, n_best)`: log probability / length penalty; -1e9 if fewer hypotheses were found.
        token_scores: float32 `(batch, n_best, length)`: log probability of each token, 0 at padding; `()` if not
            requested.
    """

    tokens: Any
    scores: Any
    token_scores: Any = ()


class SpecialIds(NamedTuple):
    """Ids of the special tokens.

    Attributes:
        pad: id of padding.
        bos: id of the start token.
        eos: id of the end token.
    """

    pad: int = PAD_ID
    bos: int = BOS_ID
    eos: int = EOS_ID


class SearchInputs(NamedTuple):
    """The inputs of a search: tensors with one row per sentence.

    Attributes:
        limits: int32 `(batch,)`: maximum tokens per hypothesis, including the end token; at least 1.
        prefix: int32 `(batch, prefix_length)`, padded: first tokens of each hypothesis, even beyond its limit.
        noise: float32 `(batch, n_samples, max_length or more)`: uniform numbers in [0, 1) from `Sampling.noise`.
    """

    limits: Any
    prefix: Any = ()
    noise: Any = ()


class State(NamedTuple):
    """The state of the search loop. The hypotheses of a sentence are consecutive rows."""

    step: Any  # int32 (): number of tokens generated so far
    newest: Any  # int32 (rows,): token to feed next; EOS or padding in finished rows
    history: Any  # tuple of (rows, max_length): int32 tokens and, if requested, their float32 log p
    suffixes: Any  # int32 (rows, max_length): result of `common_suffixes`; () if not needed
    values: Any  # float32 (rows,): log p of unfinished hypotheses, score of finished ones
    cache: Any  # cache of `next_logits`

    def is_finished(self, ids):
        """Boolean `(rows,)`: whether a row ends with EOS or padding."""
        is_padding = self.newest == ids.pad
        if ids.bos == ids.pad:  # The start token is no padding.
            is_padding = ops.logical_and(is_padding, self.step > 0)
        return ops.logical_or(self.newest == ids.eos, is_padding)

    def append(self, made, values, cache):
        """Returns the next state. `made` holds tensors `(rows,)`: the new token and, if requested, its log p."""
        is_here = ops.arange(ops.shape(self.history[0])[1], dtype="int32") == self.step
        pairs = zip(made, self.history, strict=True)
        history = tuple(ops.where(is_here, ops.expand_dims(x, 1), old) for x, old in pairs)
        suffixes = self.suffixes
        if not isinstance(suffixes, tuple):
            suffixes = common_suffixes(suffixes, history[0], made[0])
        return State(self.step + 1, made[0], history, suffixes, values, cache)


class ActiveBatch(NamedTuple):
    """The active sentences of a batch, and the results of the others."""

    active: Any  # int32 (active,): indices of the active sentences
    sentences: SearchInputs  # with one row per active sentence
    memory: Any  # tensors with one row per active sentence
    state: State  # with `beam_size` rows per active sentence
    found: Hypotheses  # of the complete batch


def run_search(
    strategy, next_logits, cache, memory, sentences, max_length, ids: SpecialIds, allowed=None
) -> Hypotheses:
    """Runs a search.

    Args:
        strategy: a `GreedySearch`, `BeamSearch` or `Sampling`.
        next_logits: callable `(tokens, cache, memory, offset) -> (logits, cache)`. It maps the newest tokens `(rows,)`,
            whose position is `offset`, to logits `(rows, vocab_size)` for the next ones, and returns the updated cache.
        cache: initial cache with `batch * beam_size` rows. The rows of a sentence are consecutive.
        memory: nested structure of tensors with `batch` rows.
        sentences: the `SearchInputs`.
        max_length: at least the largest of `sentences.limits`. Static on JAX.
        ids: the `SpecialIds`.
        allowed: the `AllowedTokens`. Default: every token except padding and BOS is allowed.

    Returns:
        `Hypotheses`.

    Example: a model that counts.

    >>> from keras_transformer.decoding import GreedySearch
    >>> def next_logits(tokens, cache, memory, offset):
    ...     return keras.ops.one_hot(tokens + 1, 8), cache
    >>> sentences = SearchInputs(limits=np.array([5], "int32"))
    >>> ids = SpecialIds(pad=0, bos=4, eos=7)
    >>> found = run_search(GreedySearch(), next_logits, (), (), sentences, max_length=5, ids=ids)
    >>> np.array(found.tokens)[0, 0, :3]
    array([5, 6, 7], dtype=int32)
    """
    searcher = strategy.make_searcher(sentences, ids, allowed)
    batch_size = ops.shape(sentences.limits)[0]
    start = start_search(searcher, cache, batch_size, max_length)
    if not kv_cache.GROWS:
        return searcher.best(_advance(searcher, next_logits, memory, start, max_length))

    def has_active(*current):
        return ops.shape(ActiveBatch(*current).active)[0] > 0

    def next_round(*current):
        r = ActiveBatch(*current)
        searcher = strategy.make_searcher(r.sentences, ids, allowed)
        end = _advance(searcher, next_logits, r.memory, r.state, max_length)
        at, new = ops.expand_dims(r.active, 1), searcher.best(end)
        found = keras.tree.map_structure(lambda old, new: ops.scatter_update(old, at, new), r.found, new)
        return _keep(r._replace(state=end, found=found), searcher.is_active(end), searcher.beam_size)

    shape = (batch_size, searcher.n_best)
    first = ActiveBatch(
        active=ops.arange(batch_size, dtype="int32"),
        sentences=sentences,
        memory=memory,
        state=start,
        found=_hypotheses(_empty(searcher, (*shape, max_length)), ops.full(shape, NEG_INF, "float32")),
    )
    first = _keep(first, sentences.limits > 0, searcher.beam_size)  # Keeps all rows, but makes their number dynamic.
    last = ActiveBatch(*ops.while_loop(has_active, next_round, first))
    tokens, scores, token_scores = last.found
    history = (tokens, token_scores) if searcher.token_scores else (tokens,)
    return _hypotheses([x[:, :, : last.state.step] for x in history], scores)


def common_suffixes(suffixes, tokens, newest):
    """Updates, for each position, the length of the longest common suffix of its left context and the sequence.

    For the tokens 5 6 7 5 6 the value at position 2 is 2, because 5 6 precedes it and ends the sequence. At the other
    positions it is 0. A token at a position with a value of at least n - 1 would repeat an n-gram if it came next.

    Args:
        suffixes: int32 `(rows, max_length)`, values before the newest token. Zeros at the start.
        tokens: int32 `(rows, max_length)`, tokens including the newest.
        newest: int32 `(rows,)`, the newest token.

    Returns:
        Int32 `(rows, max_length)`, valid at the positions of tokens.
    """
    grown = ops.where(tokens == ops.expand_dims(newest, 1), suffixes + 1, 0)
    return ops.concatenate([ops.zeros_like(grown[:, :1]), grown[:, :-1]], axis=1)


def is_possible(values):
    """Whether log probabilities or scores are above `NEG_INF`, so that the token or hypothesis is allowed."""
    return values > 0.5 * NEG_INF


def _hypotheses(history, scores):
    return Hypotheses(history[0], scores, *history[1:])


def _empty(searcher, shape):
    """Makes an empty history."""
    tokens = ops.full(shape, searcher.ids.pad, "int32")
    return (tokens, ops.zeros(shape, "float32")) if searcher.token_scores else (tokens,)


def start_search(searcher, cache, batch_size, max_length) -> State:
    """Makes the initial state, in which the first `num_first` rows of each sentence are active."""
    rows = batch_size * searcher.beam_size
    values = ops.zeros((rows,), "float32")
    if searcher.num_first < searcher.beam_size:
        is_first = ops.arange(rows, dtype="int32") % searcher.beam_size < searcher.num_first
        values = ops.where(is_first, 0.0, NEG_INF)
    return State(
        step=ops.zeros((), "int32"),
        newest=ops.full((rows,), searcher.ids.bos, "int32"),
        history=_empty(searcher, (rows, max_length)),
        suffixes=ops.zeros((rows, max_length), "int32") if searcher.ngram_size else (),
        values=values,
        cache=cache,
    )


def with_first_tokens(searcher, state: State, tokens, cache) -> State:
    """An initial state after some tokens, whose log probabilities are not added to the values.

    Args:
        searcher: the searcher.
        state: result of `start_search`.
        tokens: int32 `(batch, count)`, at least one column: the first tokens of the hypotheses of each sentence.
        cache: the cache of the start token and of these tokens but the last, with `batch` rows.
    """
    tokens, cache = keras.tree.map_structure(searcher.repeated, (tokens, cache))
    count = ops.shape(tokens)[1]
    history = (ops.slice_update(state.history[0], (0, 0), tokens), *state.history[1:])
    state = state._replace(step=state.step + count, newest=tokens[:, -1], history=history, cache=cache)
    if isinstance(state.suffixes, tuple):
        return state

    def add(place, suffixes):
        return place + 1, common_suffixes(suffixes, history[0], ops.take(tokens, place, axis=1))

    start = ops.zeros((), "int32"), state.suffixes
    return state._replace(suffixes=ops.while_loop(lambda place, suffixes: place < count, add, start)[1])


def search_step(searcher, next_logits, memory, state: State) -> State:
    """Runs the model on the newest token of each hypothesis, and appends the next one."""
    logits, cache = next_logits(state.newest, state.cache, memory, state.step)
    return searcher.advance(state, logits, cache)


def _advance(searcher, next_logits, memory, state, max_length):
    """Runs steps until all sentences are finished or, with dynamic shapes, a quarter of them."""

    def step(*state):
        return search_step(searcher, next_logits, memory, State(*state))

    def should_continue(*state):
        is_active = searcher.is_active(State(*state))
        if not kv_cache.GROWS:
            return ops.any(is_active)
        return 4 * ops.sum(ops.cast(is_active, "int32")) > 3 * ops.shape(is_active)[0]

    return State(*ops.while_loop(should_continue, step, state, maximum_iterations=max_length))


def _keep(r, is_kept, beam_size):
    """Selects sentences of an `ActiveBatch`."""
    kept = ops.nonzero(is_kept)[0]  # (kept,)
    # (kept, 1) + (beam_size,) -> (kept * beam_size,): the rows of the sentences.
    rows = ops.reshape(ops.expand_dims(kept * beam_size, 1) + ops.arange(beam_size, dtype=kept.dtype), (-1,))

    def taken(tensors, at):
        return keras.tree.map_structure(lambda x: ops.take(x, at, axis=0), tensors)

    return r._replace(
        active=taken(r.active, kept),
        sentences=taken(r.sentences, kept),
        memory=taken(r.memory, kept),
        state=State(r.state.step, *taken(tuple(r.state[1:]), rows)),
    )
