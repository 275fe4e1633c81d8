"""Generation of targets by one model, or by several models together."""

import itertools
from collections.abc import Callable

import numpy as np
from keras import ops

from keras_transformer import masks
from keras_transformer.decoding import (
    BeamSearch,
    GreedySearch,
    Hypotheses,
    Sampling,
    SearchInputs,
    Shortlist,
    TextConstraints,
    run_search,
)
from keras_transformer.decoding.allowed_tokens import AllowedTokens
from keras_transformer.decoding.vocabulary_subset import VocabularySubset, shortlist_candidates
from keras_transformer.models.base import CompiledSearch, empty_hypotheses
from keras_transformer.models.checks import checked_ids, checked_prefix, checked_strategy
from keras_transformer.models.teacher_forcing import mean_attention


class Seq2SeqGeneration(CompiledSearch):
    """The methods `search`, `generate` and `mean_attention` of models with an encoder and a decoder.

    Attributes:
        attention_scores: the attention weights of each layer; see `Transformer.attention_scores`.
    """

    attention_scores: Callable[..., tuple[np.ndarray, ...]]

    def _members(self) -> list:
        """The models that predict together. Each token has the mean of their probabilities."""
        return [self]  # A method, because Keras saves the layers in properties.

    def search(
        self, source, strategy, prefix=None, noise=None, candidates=None, shortlist=None, text_constraints=None
    ) -> Hypotheses:
        """Runs a search on tensors, without checks and compilation, for use inside a graph; see `generate`.

        Args:
            source: int tensor `(batch, source_length)`.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`.
            prefix: int tensor `(batch, prefix_length)`, or `None`.
            noise: required by `Sampling`: result of `Sampling.noise`, float32 tensor
                `(batch, n_samples, max_length)` with
                `max_length = source_length + prefix_length + max(extra_length, 1)`.
            candidates: int tensor `(candidates,)`: the tokens to search among, including those of the prefix. Default:
                those of `shortlist`, or the whole vocabulary.
            shortlist: a `Shortlist`. Without `candidates` it requires dynamic shapes.
            text_constraints: `TextConstraints`, or `None`.

        Returns:
            `Hypotheses` of tensors.
        """
        mask = masks.padding_mask(source, self.config.pad_id)
        models = self._members()
        memory = [model.decoder.project_memory(model.encode(source, mask)) for model in models]
        batch_size, source_length = ops.shape(source)
        max_length = strategy.max_length(source_length)
        if prefix is not None:
            max_length = max_length + ops.shape(prefix)[1]
        limits = strategy.limits(ops.sum(ops.cast(mask, "int32"), axis=-1), self.config.max_length or max_length)
        rows = batch_size * strategy.beam_size
        caches = [model.decoder.empty_cache(source, rows, max_length) for model in models]
        bounds = list(itertools.accumulate(map(len, caches), initial=0))  # One cache holds the layers of all models.
        if candidates is None and shortlist is not None:
            candidates = shortlist_candidates(shortlist, source)
        subset = None if candidates is None else VocabularySubset(candidates)
        if subset and prefix is not None:
            prefix = subset.to_subset_ids(prefix)
        sentences = SearchInputs(limits, *(() if x is None else x for x in (prefix, noise)))
        weights = [model.logits.output_weights(candidates) for model in models]

        def next_logits(tokens, cache, memory, offset):
            projected, mask = memory
            if subset:
                tokens = subset.to_vocabulary_ids(tokens)
            layers = itertools.starmap(slice, itertools.pairwise(bounds))
            found = [
                model.decode(tokens, memory, mask, cache=cache[own], offset=offset, output_weights=own_weights)
                for model, memory, own, own_weights in zip(models, projected, layers, weights, strict=True)
            ]
            logits = _mean([logits for logits, _ in found])
            return subset.masked(logits) if subset else logits, sum((cache for _, cache in found), ())

        allowed = text_constraints and AllowedTokens(text_constraints, candidates)
        cache, ids = sum(caches, ()), self._special_ids
        found = run_search(strategy, next_logits, cache, (memory, mask), sentences, max_length, ids, allowed)
        return found._replace(tokens=subset.to_vocabulary_ids(found.tokens)) if subset else found

    def generate(
        self,
        source,
        strategy: BeamSearch | GreedySearch | Sampling | None = None,
        prefix=None,
        shortlist: Shortlist | None = None,
        text_constraints: TextConstraints | None = None,
    ) -> Hypotheses:
        """Generates targets by a compiled search or by sampling.

        Args:
            source: int ids `(batch, source_length)`, an array or nested lists, padded with `pad_id`.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`. Default: `BeamSearch()` with the settings of the
                paper.
            prefix: int ids `(batch, prefix_length)`, padded with `pad_id`: the first tokens of every hypothesis of a
                sentence. The score includes the prefix. After a prefix that reaches the maximum length, only the end
                token follows.
            shortlist: the `Shortlist` of the tokens among which to search. Default: the whole vocabulary.
            text_constraints: those of the target tokenizer, for valid text only. Default: all tokens are allowed.

        Returns:
            `Hypotheses` of NumPy arrays. `tokens` are int32 `(batch, n_best, length)` and end with the end token and
            padding. `scores` are float32 `(batch, n_best)`. `token_scores` are returned if the strategy requests them.

        Raises:
            ValueError: if `source` is not an int matrix of ids of the source vocabulary, if `strategy` has another
                type, if `prefix` is not an int matrix of ids of the target vocabulary, has another batch size, or
                contains `bos_id`, `eos_id` or padding before other ids, or if `shortlist` does not suit the model or
                the strategy.

        Example:

        >>> from keras_transformer import Transformer, TransformerConfig
        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
        >>> model.generate([[5, 6, 7, 3]], Sampling(seed=1), prefix=[[8, 9]]).tokens[0, 0, :2]
        array([8, 9], dtype=int32)
        """
        source = checked_ids("source", source, self.config.source_vocabulary, self.config.max_length)
        strategy = BeamSearch() if strategy is None else checked_strategy(strategy)
        arrays = {"source": source}
        if prefix is not None:
            prefix = checked_prefix(prefix, len(source), self.config)
            arrays |= {"prefix": prefix} if prefix.size else {}
        candidates = None
        if shortlist is not None:
            shortlist.check(self.config, strategy)
            candidates = np.union1d(shortlist.candidates(source), arrays.get("prefix", ()))
        if not source.size:
            return empty_hypotheses(len(source), strategy)
        return self._hypotheses(strategy, arrays, candidates, text_constraints=text_constraints)

    def mean_attention(self, source, target) -> np.ndarray:
        """Computes the mean of `attention_scores` over heads and layers.

        Args:
            source: int ids `(batch, source_length)`, padded with `pad_id`.
            target: int ids `(batch, target_length)`; see `Transformer.token_log_probs`.

        Returns:
            Float32 array `(batch, target_length, source_length)`.
        """
        return mean_attention(self.attention_scores(source, target), np.mean)


def _mean(logits):
    """The logits of the mean of the probabilities."""
    if len(logits) == 1:
        return logits[0]
    log_probs = [ops.log_softmax(ops.cast(x, "float32"), axis=-1) for x in logits]
    return ops.logsumexp(ops.stack(log_probs), axis=0)  # (models, rows, vocab_size) -> (rows, vocab_size)
