"""Generation of targets by a compiled search."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_transformer.checks import require, same_number
from keras_transformer.decoding import (
    BeamSearch,
    GreedySearch,
    Hypotheses,
    Sampling,
    Shortlist,
    TextConstraints,
)
from keras_transformer.decoding.vocabulary_subset import rounded_candidates
from keras_transformer.models import teacher_forcing
from keras_transformer.models.base import empty_hypotheses
from keras_transformer.models.checks import checked_ids, checked_prefix, checked_source, checked_strategy
from keras_transformer.models.compiled import CompiledSearch, batch_size
from keras_transformer.models.model_search import search
from keras_transformer.models.streaming import checked_stream_strategy, stream_tokens


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
        arrays = self._search_inputs(source, prefix)
        candidates = None
        if shortlist is not None:
            self._check_shortlist(shortlist, strategy)
            candidates = np.union1d(shortlist.candidates(source), arrays.get("prefix", ()))
        if self._is_empty(source):
            return empty_hypotheses(batch_size(source), strategy)
        longest = self._longest(strategy, **arrays)
        return self._hypotheses(strategy, arrays, longest, candidates, text_constraints=text_constraints)

    def stream(self, source, strategy: GreedySearch | Sampling | None = None, prefix=None) -> Iterator[np.ndarray]:
        """Generates targets and yields each token as soon as it is decided.

        Each step is one call of a compiled function.

        Args:
            source: see `generate`.
            strategy: `GreedySearch` or `Sampling`. Default: `GreedySearch()`.
            prefix: see `generate`. Its tokens are yielded, too.

        Yields:
            The tokens at one position, int32 `(batch, n_best)`: those of `generate(source, strategy, prefix).tokens`.

        Raises:
            ValueError: as `generate`, and if `strategy` is a `BeamSearch` of several beams.

        Example:

        >>> from keras_transformer import Transformer, TransformerConfig
        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
        >>> next(model.stream([[5, 6, 7, 3]])).shape
        (1, 1)
        """
        source = self._checked_source(source)
        strategy = checked_stream_strategy(GreedySearch() if strategy is None else strategy)
        arrays = self._search_inputs(source, prefix)
        if self._is_empty(source):
            return iter(())
        return stream_tokens(self, strategy, arrays, self._longest(strategy, **arrays))

    def _search_inputs(self, source, prefix):
        """The arrays of a search by name, without those of the strategy. Checks the prefix."""
        arrays = {"source": self._rounded_source(source)}
        if prefix is not None:
            prefix = checked_prefix(prefix, batch_size(source), self)
            arrays |= {"prefix": self._rounded(prefix)} if prefix.size else {}
        return arrays

    def _is_empty(self, source):
        return not batch_size(source) or (self.source_vocabulary and not source.size)

    def _longest(self, strategy, source, prefix=None) -> int:
        """The number of positions of the longest source or prefix, if the strategy needs it."""
        if not isinstance(strategy, Sampling):
            return 0
        return max(self._source_length(source), 0 if prefix is None else prefix.shape[1])

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
