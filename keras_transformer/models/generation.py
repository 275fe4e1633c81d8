"""Generation of targets: the search over a model's `encode` and `decode`, and its compiled form."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import require, same_number
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
from keras_transformer.decoding.vocabulary_subset import VocabularySubset, rounded_candidates, shortlist_candidates
from keras_transformer.models import teacher_forcing
from keras_transformer.models.base import empty_hypotheses
from keras_transformer.models.checks import checked_ids, checked_prefix, checked_source, checked_strategy
from keras_transformer.models.compiled import CompiledSearch, batch_size


def search(
    model, source, strategy, prefix=None, noise=None, candidates=None, shortlist=None, text_constraints=None
) -> Hypotheses:
    """Searches with any model that has `encode`, `decode` and the other methods of `Seq2Seq`; see `Seq2Seq.search`."""
    memory, mask = model.encode(source)
    rows = ops.shape(keras.tree.flatten(source)[0])[0]
    lengths, longest = ops.zeros((rows,), "int32"), 0
    if mask is not None:
        lengths, longest = ops.sum(ops.cast(mask, "int32"), axis=-1), ops.shape(mask)[1]
    if prefix is not None:
        longest = _larger(longest, ops.shape(prefix)[1])
    max_length = strategy.max_length(longest)
    limits = strategy.limits(lengths, model.max_length or max_length)
    if candidates is None and shortlist is not None:
        candidates = shortlist_candidates(shortlist, source)
    subset = None if candidates is None else VocabularySubset(candidates)
    if subset and prefix is not None:
        prefix = subset.to_subset_ids(prefix)
    sentences = SearchInputs(limits, *(() if x is None else x for x in (prefix, noise)))
    options = model.step_options(candidates)

    def next_logits(tokens, cache, memory, offset):
        if subset:
            tokens = subset.to_vocabulary_ids(tokens)
        logits, cache = model.decode(tokens, *memory, cache=cache, offset=offset, **options)
        return subset.masked(logits) if subset else logits, cache

    allowed = text_constraints and AllowedTokens(text_constraints, candidates)
    cache = model.empty_cache(rows * strategy.beam_size, max_length)
    memory = (model.project_memory(memory), *(() if mask is None else (mask,)))
    found = run_search(strategy, next_logits, cache, memory, sentences, max_length, model.special_ids, allowed)
    return found._replace(tokens=subset.to_vocabulary_ids(found.tokens)) if subset else found


def _larger(*lengths):
    """The largest of static or dynamic lengths."""
    return max(lengths) if all(isinstance(x, int) for x in lengths) else ops.maximum(*lengths)


class Seq2SeqMethods(CompiledSearch):
    """The methods of `Seq2Seq` that use `encode` and `decode`.

    Attributes:
        vocab_size: size of the vocabulary of the target.
        source_vocabulary: size of the vocabulary of source ids; `None` if the source is something else.
    """

    vocab_size: Any
    source_vocabulary: Any = None
    encode: Callable
    decode: Callable
    decoder: Any

    def search(
        self, source, strategy, prefix=None, noise=None, candidates=None, shortlist=None, text_constraints=None
    ) -> Hypotheses:
        """Runs a search on tensors, without checks and compilation, for use inside a graph; see `generate`.

        Args:
            source: the source. Token ids are an int tensor `(batch, source_length)`.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`.
            prefix: int tensor `(batch, prefix_length)`, or `None`.
            noise: required by `Sampling`: result of `Sampling.noise`, float32 tensor `(batch, n_samples, max_length or
                more)` with `max_length = max(source_length, prefix_length) + max(extra_length, 1)`.
            candidates: int tensor `(candidates,)`: the tokens to search among, including those of the prefix. Default:
                those of `shortlist`, or the whole vocabulary. Only for a `Transformer` or an `Ensemble`.
            shortlist: a `Shortlist`. Without `candidates` it requires dynamic shapes.
            text_constraints: `TextConstraints`, or `None`.

        Returns:
            `Hypotheses` of tensors.
        """
        return search(self, source, strategy, prefix, noise, candidates, shortlist, text_constraints)

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
            source: the source, arrays or nested lists. Token ids are int `(batch, source_length)`, padded with
                `pad_id`.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`. Default: `BeamSearch()` with the settings of the
                paper.
            prefix: int ids `(batch, prefix_length)`, padded with `pad_id`: the first tokens of every hypothesis of a
                sentence. The score includes the prefix. After a prefix that reaches the maximum length, only the end
                token follows.
            shortlist: the `Shortlist` of the tokens among which to search. Default: the whole vocabulary. Only for a
                `Transformer` or an `Ensemble`.
            text_constraints: those of the target tokenizer, for valid text only. Default: all tokens are allowed.

        Returns:
            `Hypotheses` of NumPy arrays. `tokens` are int32 `(batch, n_best, length)` and end with the end token and
            padding. `scores` are float32 `(batch, n_best)`. `token_scores` are returned if the strategy requests them.

        Raises:
            ValueError: if `source` does not have the shape of the model's source or contains ids outside of its
                vocabulary, if `strategy` has another type, if `prefix` is not an int matrix of ids of the target
                vocabulary, has another batch size, or contains `bos_id`, `eos_id` or padding before other ids, or if
                `shortlist` does not suit the model or the strategy.

        Example:

        >>> from keras_transformer import Transformer, TransformerConfig
        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
        >>> model.generate([[5, 6, 7, 3]], Sampling(seed=1), prefix=[[8, 9]]).tokens[0, 0, :2]
        array([8, 9], dtype=int32)
        """
        source = self._checked_source(source)
        strategy = BeamSearch() if strategy is None else checked_strategy(strategy)
        arrays, rows = {"source": self._rounded_source(source)}, batch_size(source)
        if prefix is not None:
            prefix = checked_prefix(prefix, rows, self)
            arrays |= {"prefix": self._rounded(prefix)} if prefix.size else {}
        candidates = None
        if shortlist is not None:
            self._check_shortlist(shortlist, strategy)
            candidates = np.union1d(shortlist.candidates(source), arrays.get("prefix", ()))
        if not rows or (self.source_vocabulary and not source.size):
            return empty_hypotheses(rows, strategy)
        longest = 0
        if isinstance(strategy, Sampling):
            longest = max(self._source_length(arrays["source"]), np.shape(arrays.get("prefix", [[]]))[1])
        return self._hypotheses(strategy, arrays, longest, candidates, text_constraints=text_constraints)

    def token_log_probs(self, source, target, candidates=None) -> np.ndarray:
        """Computes the log probability of each target token, given those before it. The function is compiled.

        Args:
            source: the source; see `generate`.
            target: int ids `(batch, target_length)`, without the start token, with the end token, padded with
                `pad_id`, such as tokens from `generate`.
            candidates: int ids `(candidates,)` in ascending order: the tokens that have a probability, as in a search
                with a `Shortlist`. Default: the whole vocabulary.

        Returns:
            Float32 array `(batch, target_length)`; 0 at padding, and -1e9 where a token is not a candidate.

        Raises:
            ValueError: if `source` or `target` is not an int matrix of ids of its vocabulary, or the batch sizes
                differ.

        Example:

        >>> from keras_transformer import Transformer, TransformerConfig
        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
        >>> model.token_log_probs([[5, 6, 3], [7, 3, 0]], [[8, 3], [9, 3]]).shape
        (2, 2)
        """
        source, target = self._checked_pairs(source, target)
        if target.size == 0:
            return np.zeros(target.shape, "float32")
        arrays = {"source": self._rounded_source(source), "target": self._rounded(target)}
        if candidates is not None:
            arrays["candidates"] = rounded_candidates(candidates)
        return self._compiled(teacher_forcing.token_log_probs).run(**arrays)[:, : target.shape[1]]

    def project_memory(self, memory):
        """Computes what every decoding step needs of the memory, once per search.

        Args:
            memory: the memory of `encode`.

        Returns:
            The memory that `search` passes to `decode`. Its tensors have one row per sentence.
        """
        return self._own_decoder.project_memory(memory)

    def empty_cache(self, batch_size, max_length):
        """Makes the cache of the first decoding step.

        Args:
            batch_size: number of rows.
            max_length: maximum number of target tokens.

        Returns:
            A structure of tensors with `batch_size` rows.
        """
        return self._own_decoder.empty_cache(batch_size, max_length)

    def step_options(self, candidates=None) -> dict:
        """Computes the keyword arguments of `decode` that are the same in all steps of a search.

        Args:
            candidates: int tensor `(candidates,)`: the tokens whose logits are computed. Default: the vocabulary.
        """
        if candidates is not None:
            raise ValueError(f"`candidates` requires a Transformer, or several. Received: {type(self).__name__}")
        return {}

    @property
    def _own_decoder(self):
        if not hasattr(self, "decoder"):
            raise ValueError(
                "A Seq2Seq without a Decoder as its attribute `decoder` must override `project_memory` and "
                f"`empty_cache`. Received: {type(self).__name__}"
            )
        return self.decoder

    def _checked_source(self, source):
        return checked_source(source, self.source_spec)

    def _checked_pairs(self, source, target):
        """Checks sources and target ids, one row of each per pair. Returns arrays."""
        source = self._checked_source(source)
        target = checked_ids("target", target, self.vocab_size, self.max_length)
        require(same_number("rows", source=keras.tree.flatten(source)[0], target=target))
        return source, target

    def _check_shortlist(self, shortlist, strategy) -> None:
        raise ValueError(
            f"`shortlist` requires a Transformer of token ids, or several. Received: {type(self).__name__}"
        )

    def _rounded_source(self, source):
        return source

    def _source_length(self, source) -> int:
        """The number of positions in the mask of the memory; 0 without a mask."""
        _, mask = self.encode(source)
        return 0 if mask is None else mask.shape[1]
