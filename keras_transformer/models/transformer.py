"""The encoder-decoder Transformer as a functional Keras model."""

import keras
import numpy as np
from keras import ops

from keras_transformer import masks
from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import (
    BeamSearch,
    GreedySearch,
    Hypotheses,
    Sampling,
    SearchInputs,
    SpecialIds,
    run_search,
)
from keras_transformer.layers.positional_encoding import segment_positions
from keras_transformer.models import teacher_forcing
from keras_transformer.models.base import ConfiguredModel, checked_policy, nothing_found
from keras_transformer.models.checks import checked_ids, checked_pairs, checked_prefix, checked_strategy
from keras_transformer.models.parts import make_layers


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(ConfiguredModel):
    """logits = E · decoder(target, encoder(source)).

    A functional model of `{"source": (batch, source_length), "target": (batch, target_length)}`, both
    int ids, whose output is `(batch, target_length, vocab_size)` logits. The target is the one shifted
    right: it starts with `bos_id`, and the logits at a position predict the next token.

    Masking: source and target positions that hold `pad_id` are attended by none, and no target
    position attends to a later one. The logits carry no mask.

    Several pairs may share a row: then `"source_segments"` and `"target_segments"`, of the shapes of
    `"source"` and `"target"`, say of each token which pair it is of (0 at padding). Tokens attend to those
    of their own pair, and positions count anew in each, so that the logits are those of the pairs apart.

    Args:
        config: a `TransformerConfig`.
        **kwargs: `name` and `dtype` (a dtype policy such as `"mixed_bfloat16"`).

    Raises:
        ValueError: if `config` is not a `TransformerConfig`, or segments are given of one side alone.

    Example:

    >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
    >>> source = np.array([[5, 6, 7, 3]])
    >>> model({"source": source, "target": np.array([[2, 8, 9]])}).shape
    TensorShape([1, 3, 100])
    >>> model.generate(source).tokens.shape[:2]
    (1, 1)

    Reference:
        Vaswani et al. 2017, §3 and Figure 1.
    """

    def __init__(self, config: TransformerConfig, *, name="transformer", dtype=None, **kwargs):
        policy = checked_policy(config, dtype)
        # On PyTorch no layer can be an attribute before `super().__init__`, which needs the whole graph.
        vars(self).update(config=config, **make_layers(config, policy))
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        logits = self.decode(target, self.encode(source))
        super().__init__({"source": source, "target": target}, logits, policy, name=name, **kwargs)

    def call(self, inputs, training=None, mask=None):
        given = inputs if isinstance(inputs, dict) else {}  # Keras takes a list, too.
        segments = {name: given[name] for name in ("source_segments", "target_segments") if name in given}
        if not segments:
            return super().call(inputs, training=training, mask=mask)
        if len(segments) == 1:
            raise ValueError(f"`source_segments` and `target_segments` go together. Received: {[*segments]}")
        memory = self.encode(given["source"], source_segments=segments["source_segments"])
        return self.decode(given["target"], memory, **segments)

    def encode(self, source, source_mask=None, source_segments=None):
        """The encoder's output.

        Args:
            source: int `(batch, source_length)`.
            source_mask: boolean `(batch, source_length)`. Default: what is not padding.
            source_segments: int `(batch, source_length)`, of rows that hold several sentences.

        Returns:
            Memory `(batch, source_length, d_model)`.
        """
        x = self.source_positions(self.source_embedding(source), positions=_positions(source_segments))
        return self.encoder(
            self.source_dropout(x), mask=source_mask, attention_mask=_same_segment(source_segments, source_segments)
        )

    def decode(
        self,
        target,
        memory,
        memory_mask=None,
        target_segments=None,
        source_segments=None,
        cache=None,
        offset=0,
        return_attention_scores=False,
        output_matrix=None,
    ):
        """The logits of a target.

        Args:
            target: int `(batch, target_length)`; with a cache also `(batch,)`, one token of each row.
            memory: from `encode`, or from `decoder.project_memory`.
            memory_mask: boolean `(batch, source_length)`. Default: the mask that `memory` carries.
            target_segments: int `(batch, target_length)`, of rows that hold several targets; without a cache.
            source_segments: int `(batch, source_length)`, of the sources of these.
            cache: from `decoder.empty_cache` or the last call.
            offset: position of the first target token; with a cache.
            return_attention_scores: also return the weights of the attention to the memory.
            output_matrix: from `logits.embedding.output_matrix`, where tokens are decoded one by one.

        Returns:
            Logits, the shape of `target` and `vocab_size`; followed by the weights if asked for, as of
            `Decoder`; followed by the grown cache if one was given.
        """
        x = self.target_embedding(target)
        x = self.target_positions(x, offset=offset, positions=_positions(target_segments))
        result = self.decoder(
            self.target_dropout(x),
            memory,
            memory_mask=memory_mask,
            attention_mask=_same_segment(target_segments, target_segments),
            memory_attention_mask=_same_segment(target_segments, source_segments),
            cache=cache,
            offset=offset,
            return_attention_scores=return_attention_scores,
        )
        x, *others = result if isinstance(result, tuple) else (result,)
        logits = self.logits(x, matrix=output_matrix)
        return (logits, *others) if others else logits

    def search(self, source, strategy, prefix=None, noise=None) -> Hypotheses:
        """`generate` without its checks and conversions: for graphs that contain the search.

        Args:
            source: int tensor `(batch, source_length)`.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`.
            prefix: int tensor `(batch, prefix_length)`, or `None`.
            noise: of `Sampling`: float32 tensor `(batch, n_samples, max_length)`, from its `noise`, where
                `max_length` is `source_length + prefix_length + max(extra_length, 1)`.

        Returns:
            `Hypotheses` of tensors.
        """
        mask = masks.padding_mask(source, self.config.pad_id)
        memory = self.decoder.project_memory(self.encode(source, mask))
        batch_size, source_length = ops.shape(source)
        max_length = source_length + max(strategy.extra_length, 1)
        limits = ops.sum(ops.cast(mask, "int32"), axis=-1) + strategy.extra_length
        if prefix is not None:
            max_length = max_length + ops.shape(prefix)[1]
        limits = ops.clip(limits, 1, self.config.max_length or max_length)
        cache = self.decoder.empty_cache(source, batch_size * strategy.beam_size, max_length)
        sentences = SearchInputs(limits, *(() if x is None else x for x in (prefix, noise)))
        matrix = self.logits.embedding.output_matrix()

        def next_logits(tokens, cache, memory, offset):
            projected, mask = memory
            return self.decode(tokens, projected, mask, cache=cache, offset=offset, output_matrix=matrix)

        ids = SpecialIds(self.config.pad_id, self.config.bos_id, self.config.eos_id)
        return run_search(strategy.searching, next_logits, cache, (memory, mask), sentences, max_length, ids)

    def generate(self, source, strategy: BeamSearch | GreedySearch | Sampling | None = None, prefix=None) -> Hypotheses:
        """Searches for the best targets, or draws some, compiled.

        Args:
            source: int ids `(batch, source_length)`, padded with `pad_id`; an array or nested lists.
            strategy: `BeamSearch`, `GreedySearch` or `Sampling`. Default: `BeamSearch()`, the paper's.
            prefix: int ids `(batch, prefix_length)` that every hypothesis of a sentence begins with,
                padded with `pad_id`. Its log probability counts; of one as long as the limit the end follows.

        Returns:
            `Hypotheses` of NumPy arrays: tokens int32 `(batch, n_best, length)`, with the end token and
            then padding, scores float32 `(batch, n_best)`, and token scores if asked for.

        Raises:
            ValueError: if `source` is not a matrix of ids of the source vocabulary, `strategy` is another
                object, such as a string, or `prefix` is not a matrix of as many rows with ids of the target
                vocabulary, without start, end or inner padding.

        Example:

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
        return self._hypotheses(strategy, **arrays) if source.size else nothing_found(len(source), strategy)

    def token_log_probs(self, source, target) -> np.ndarray:
        """The log probability of each token of given targets, after those before it; compiled.

        Args:
            source: int ids `(batch, source_length)`, padded with `pad_id`.
            target: int ids `(batch, target_length)`, without the start token, with the end token and then
                padding: such as the tokens of `generate`.

        Returns:
            Float32 array `(batch, target_length)`; 0 at padding.

        Raises:
            ValueError: if one is no matrix of ids of its vocabulary, or they have not as many rows.

        Example:

        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
        >>> model.token_log_probs([[5, 6, 3], [7, 3, 0]], [[8, 3], [9, 3]]).shape
        (2, 2)
        """
        source, target = checked_pairs(source, target, self.config)
        if target.size == 0:
            return np.zeros(target.shape, "float32")
        arrays = {"source": self._rounded(source), "target": self._rounded(target)}
        return self._compiled(teacher_forcing.token_log_probs).run(**arrays)[:, : target.shape[1]]

    def attention_scores(self, source, target) -> tuple[np.ndarray, ...]:
        """How the making of each token of given targets attends to the source; compiled.

        Args:
            source: int ids `(batch, source_length)`, padded with `pad_id`.
            target: int ids `(batch, target_length)`, as in `token_log_probs`.

        Returns:
            One float32 array `(batch, num_heads, target_length, source_length)` a layer of the decoder:
            at row t the weights by which token t was predicted; 0 at padding of either.

        Raises:
            ValueError: as of `token_log_probs`.

        Example:

        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
        >>> source = [[5, 6, 7, 3]]
        >>> best = model.generate(source).tokens[:, 0]
        >>> model.attention_scores(source, best)[-1].shape == (1, model.config.num_heads, best.shape[1], 4)
        True
        """
        source, target = checked_pairs(source, target, self.config)
        lengths = (target.shape[1], source.shape[1])
        if target.size == 0 or source.size == 0:
            shape = (len(source), self.config.num_heads, *lengths)
            return tuple(np.zeros(shape, "float32") for _ in range(self.config.num_layers))
        arrays = {"source": self._rounded(source), "target": self._rounded(target)}
        scores = self._compiled(teacher_forcing.attention_scores).run(**arrays)
        return tuple(x[:, :, : lengths[0], : lengths[1]] for x in scores)


def _positions(segments):
    return None if segments is None else segment_positions(segments)


def _same_segment(query_segments, key_segments):
    return None if query_segments is None else masks.segment_mask(query_segments, key_segments)
