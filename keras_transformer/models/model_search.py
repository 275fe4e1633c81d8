"""The search over a model's `encode` and `decode`, on tensors."""

import keras
from keras import ops

from keras_transformer.decoding import Hypotheses, SearchInputs, run_search
from keras_transformer.decoding.allowed_tokens import AllowedTokens
from keras_transformer.decoding.vocabulary_subset import VocabularySubset, shortlist_candidates


def search(
    model, source, strategy, prefix=None, noise=None, candidates=None, shortlist=None, text_constraints=None
) -> Hypotheses:
    """Searches with any model that has `encode`, `decode` and the other methods of `Seq2Seq`; see `Seq2Seq.search`."""
    if candidates is None and shortlist is not None:
        candidates = shortlist_candidates(shortlist, source)
    subset = None if candidates is None else VocabularySubset(candidates)
    if subset and prefix is not None:
        prefix = subset.to_subset_ids(prefix)
    memory, options, sentences, max_length = prepared_search(model, strategy, source, prefix, noise, candidates)

    def next_logits(tokens, cache, memory, offset):
        if subset:
            tokens = subset.to_vocabulary_ids(tokens)
        logits, cache = model.decode(tokens, *memory, cache=cache, offset=offset, **options)
        return subset.masked(logits) if subset else logits, cache

    allowed = text_constraints and AllowedTokens(text_constraints, candidates)
    cache = model.empty_cache(ops.shape(sentences.limits)[0] * strategy.beam_size, max_length)
    found = run_search(strategy, next_logits, cache, memory, sentences, max_length, model.special_ids, allowed)
    return found._replace(tokens=subset.to_vocabulary_ids(found.tokens)) if subset else found


def prepared_search(model, strategy, source, prefix=None, noise=None, candidates=None):
    """Computes what all steps of a search need.

    Returns:
        A tuple of the memory, as the positional arguments of `decode` after the tokens; the keyword arguments of
        `decode`; the `SearchInputs`; and the maximum number of tokens of all hypotheses.
    """
    memory, mask = model.encode(source)
    rows = ops.shape(keras.tree.flatten(source)[0])[0]
    lengths, longest = ops.zeros((rows,), "int32"), 0
    if mask is not None:
        lengths, longest = ops.sum(ops.cast(mask, "int32"), axis=-1), ops.shape(mask)[1]
    if prefix is not None:
        longest = _larger(longest, ops.shape(prefix)[1])
    max_length = strategy.max_length(longest)
    limits = strategy.limits(lengths, model.max_length or max_length)
    sentences = SearchInputs(limits, *(() if x is None else x for x in (prefix, noise)))
    memory = (model.project_memory(memory), *(() if mask is None else (mask,)))
    return memory, model.step_options(candidates), sentences, max_length


def _larger(*lengths):
    """The largest of static or dynamic lengths."""
    return max(lengths) if all(isinstance(x, int) for x in lengths) else ops.maximum(*lengths)
