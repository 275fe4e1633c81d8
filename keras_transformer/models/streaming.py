"""Streams of tokens: a search whose steps are compiled one by one. Each token is yielded when it is decided."""

from collections.abc import Iterator

import numpy as np
from keras import ops

from keras_transformer.decoding import BeamSearch
from keras_transformer.decoding.search import search_step, start_search, with_first_tokens
from keras_transformer.models.checks import checked_strategy
from keras_transformer.models.compiled import with_noise
from keras_transformer.models.model_search import prepared_search


def stream_tokens(model, strategy, arrays, longest: int, num_given: int = 0) -> Iterator[np.ndarray]:
    """Returns a generator that runs a search step by step.

    Args:
        model: the model.
        strategy: a `GreedySearch` or `Sampling`.
        arrays: `source` and `prefix` by name, and `first_tokens`, int `(batch, count)`: tokens of all hypotheses that
            are fed in one pass.
        longest: number of positions of the longest source or prefix.
        num_given: number of the first tokens of a hypothesis that are not yielded.

    Yields:
        The next token of each hypothesis, int32 `(batch, n_best)`.

    Raises:
        ValueError: if a `Sampling` has another number of seeds. The call raises it, before the first token.
    """
    return _tokens(model, *with_noise(strategy, arrays, longest), num_given)


def _tokens(model, strategy, arrays, num_given):
    start = model._compiled(start_stream, strategy=strategy)
    step = model._compiled(continue_stream, strategy=strategy)
    tensors, ids = start.run_tensors(arrays), model.special_ids
    specs = start.result_specs(arrays)
    position, has_ended = int(tensors["state"].step), False
    while not has_ended:
        tensors["state"] = step.run_tensors(tensors, specs)
        newest = ops.convert_to_numpy(tensors["state"].newest)
        if position >= num_given:
            yield newest.reshape(-1, strategy.n_best)
        has_ended = np.isin(newest, (ids.eos, ids.pad)).all()
        position += 1


def checked_stream_strategy(strategy):
    """Returns the strategy, or raises an error if it has another type or decides the tokens only at its end."""
    checked_strategy(strategy)
    if isinstance(strategy, BeamSearch) and strategy.beam_size > 1:
        raise ValueError(
            "`strategy` must be a GreedySearch or Sampling, because a beam search decides its tokens at the end. "
            f"Received: strategy={strategy}"
        )
    return strategy


def start_stream(model, strategy, first_tokens=None, **inputs) -> dict:
    """The tensors of the first step: arguments of `continue_stream`."""
    memory, options, sentences, max_length = prepared_search(model, strategy, **inputs)
    searcher = strategy.make_searcher(sentences, model.special_ids)
    rows = ops.shape(sentences.limits)[0]
    state = start_search(searcher, model.empty_cache(rows * strategy.beam_size, max_length), rows, max_length)
    if first_tokens is not None:
        state = with_first_tokens(searcher, state, first_tokens, model.first_cache(first_tokens, max_length))
    return {"memory": memory, "options": options, "sentences": sentences, "state": state}


def continue_stream(model, strategy, memory, options, sentences, state):
    """The `State` after one more token."""

    def next_logits(tokens, cache, memory, offset):
        return model.decode(tokens, *memory, cache=cache, offset=offset, **options)

    searcher = strategy.make_searcher(sentences, model.special_ids)
    return search_step(searcher, next_logits, memory, state)
