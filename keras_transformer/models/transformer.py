"""The encoder-decoder Transformer as a functional Keras model."""

import keras
import numpy as np

from keras_transformer import masks
from keras_transformer.config import TransformerConfig
from keras_transformer.models import teacher_forcing
from keras_transformer.models.base import ConfiguredModel
from keras_transformer.models.checks import checked_ids
from keras_transformer.models.front_end import source_input
from keras_transformer.models.generation import Seq2SeqMethods
from keras_transformer.models.packed import packed_positions, same_segment
from keras_transformer.models.parts import Parts


@keras.saving.register_keras_serializable(package="keras_transformer")
class Transformer(ConfiguredModel, Seq2SeqMethods):
    """logits = E · decoder(target, encoder(source)).

    This is a functional model. Its input is a dict of int ids, `{"source": (batch, source_length), "target":
    (batch, target_length)}`. Its output is logits `(batch, target_length, vocab_size)`. The target is shifted right: it
    starts with `bos_id`, and the logits at a position predict the next token.

    Masking: source and target positions with `pad_id` are not attended to, and no target position attends to a later
    one. The logits carry no Keras mask.

    Packing: a row may contain several pairs. Then the inputs `"source_segments"` and `"target_segments"`, of the shapes
    of `"source"` and `"target"`, contain the number of the pair of each token, and 0 at padding. Attention is masked
    between pairs and positions restart in each pair, so the logits equal those of unpacked pairs.

    Other sources: `source=model` replaces the ids and the embedding of the source by a functional model, such as
    `keras.Sequential([keras.Input((224, 224, 3)), PatchEmbedding(16, config.d_model)])`. Positions are added to its
    output. Its implicit Keras mask, if it has one, masks the memory. It keeps its dtype.

    Args:
        config: a `TransformerConfig`.
        encoder_layer: the layer of which the encoder has copies. Default: an `EncoderLayer` of the configuration.
        decoder_layer: the layer of which the decoder has copies. Default: a `DecoderLayer` of the configuration.
        source: a functional model that maps the source, any tensor or structure of tensors, to `(batch,
            source_length, d_model)`. Default: the source is int ids, and the model has an embedding.
        **kwargs: `name`, `dtype` (a dtype policy such as `"mixed_bfloat16"`), and for the layers that the model makes
            `kernel_initializer`, `bias_initializer`, `embeddings_initializer`, `kernel_regularizer` and `seed` (int,
            for equal initial weights and dropout in each run).

    Raises:
        ValueError: if `config` is not a `TransformerConfig`, if `source` does not fit, if only one of
            `source_segments` and `target_segments` is given, or if they are given for another source than ids.

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

    def __init__(
        self,
        config: TransformerConfig,
        encoder_layer=None,
        decoder_layer=None,
        source=None,
        *,
        name="transformer",
        dtype=None,
        **kwargs,
    ):
        parts = Parts(config, dtype, kwargs, source, encoder_layer=encoder_layer, decoder_layer=decoder_layer)
        # `super().__init__` needs the graph of these layers. Before that call, PyTorch rejects `self.name = layer`.
        self.__dict__.update(config=config, **parts.two_stacks(encoder_layer, decoder_layer))
        source = source_input(parts.source, prefix="source_")
        target = keras.Input((None,), dtype="int32", name="target")
        logits = self.decode(target, *self.encode(source))
        super().__init__({"source": source, "target": target}, logits, parts, name=name, **kwargs)

    def _forward(self, inputs, training=None, mask=None):
        given = inputs if isinstance(inputs, dict) else {}  # Keras also accepts a list of source and target.
        segments = {name: given[name] for name in ("source_segments", "target_segments") if name in given}
        if not segments:
            return super()._forward(inputs, training=training, mask=mask)
        if self.parts.source is not None:
            raise ValueError(f"Packed rows require token ids as source. Received: {', '.join(segments)}")
        # On JAX, Keras runs `call` outside of `__call__`, so that layers get `training` only as an argument.
        memory = self.encode(given["source"], source_segments=segments.get("source_segments"), training=training)
        return self.decode(given["target"], *memory, **segments, training=training)

    def encode(self, source, source_mask=None, source_segments=None, training=None):
        """Encodes a source.

        Args:
            source: int `(batch, source_length)`, or the input of the model in place of the embedding.
            source_mask: boolean `(batch, source_length)`. Default: `True` where `source` is not `pad_id`, or the
                implicit mask of the model's output.
            source_segments: int `(batch, source_length)`, for packed rows: the number of the sentence of each token.
            training: whether to apply dropout. Default: as in the call that runs this method, or `False`.

        Returns:
            The encoder output ("memory"), `(batch, source_length, d_model)`, and its boolean mask
            `(batch, source_length)`; `None` without a mask.
        """
        x = self.source_embedding(source)
        mask = masks.resolve(source_mask, x)
        x = self.source_positions(x, positions=packed_positions(source_segments))
        memory = self.encoder(
            self.source_dropout(self.source_norm(x), training=training),
            mask=mask,
            attention_mask=same_segment(source_segments, source_segments),
            training=training,
        )
        return memory, mask

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
        output_weights=None,
        training=None,
    ):
        """Computes the logits for the token after each target token.

        Args:
            target: int `(batch, target_length)`; with a cache also `(batch,)`, one token per row.
            memory: result of `encode` or of `decoder.project_memory`.
            memory_mask: boolean `(batch, source_length)`. Default: the Keras mask of `memory`.
            target_segments: int `(batch, target_length)`, for packed rows, without a cache.
            source_segments: int `(batch, source_length)`, for packed rows, without a cache.
            cache: result of `decoder.empty_cache` or of the previous call.
            offset: position of the first target token, if a cache is given.
            return_attention_scores: whether to also return the cross-attention weights.
            output_weights: result of `logits.output_weights`, to compute it once for many decoding steps.
            training: whether to apply dropout. Default: as in the call that runs this method, or `False`.

        Returns:
            Logits `(*target.shape, vocab_size)`. With `return_attention_scores` or a cache, a tuple of the logits, the
            attention weights as `Decoder` returns them, and the updated cache.

        Raises:
            ValueError: if only one of `source_segments` and `target_segments` is given.
        """
        if (source_segments is None) != (target_segments is None):
            found = "target_segments" if source_segments is None else "source_segments"
            raise ValueError(f"`source_segments` and `target_segments` must be given together. Received: {[found]}")
        x = self.target_embedding(target)
        x = self.target_positions(x, offset=offset, positions=packed_positions(target_segments))
        result = self.decoder(
            self.target_dropout(self.target_norm(x), training=training),
            memory,
            target_mask=self._target_mask(target, target_segments),
            memory_mask=memory_mask,
            attention_mask=same_segment(target_segments, target_segments),
            memory_attention_mask=same_segment(target_segments, source_segments),
            cache=cache,
            offset=offset,
            return_attention_scores=return_attention_scores,
            training=training,
        )
        x, *others = result if isinstance(result, tuple) else (result,)
        logits = self.logits(x, weights=output_weights)
        return (logits, *others) if others else logits

    def step_options(self, candidates=None) -> dict:
        """See `Seq2Seq.step_options`."""
        return {"output_weights": self.logits.output_weights(candidates)}

    def attention_scores(self, source, target) -> tuple[np.ndarray, ...]:
        """Computes the cross-attention weights of given targets. The function is compiled.

        Args:
            source: the source; see `generate`.
            target: int ids `(batch, target_length)`; see `token_log_probs`.

        Returns:
            One float32 array `(batch, num_heads, target_length, source_length)` per decoder layer. Row t contains the
            weights of the decoding step that predicts target token t. Weights are 0 at padding.

        Raises:
            ValueError: see `token_log_probs`; also if a cross-attention of your own does not return its weights.

        Example:

        >>> model = Transformer(TransformerConfig.preset("tiny", vocab_size=100))
        >>> source = [[5, 6, 7, 3]]
        >>> best = model.generate(source).tokens[:, 0]
        >>> model.attention_scores(source, best)[-1].shape == (1, model.config.num_heads, best.shape[1], 4)
        True
        """
        teacher_forcing.check_scores(self.decoder)
        source, target = self._checked_pairs(source, target)
        source_length = source.shape[1] if self.parts.source is None else None
        if target.size == 0 or source_length == 0:
            shape = (len(target), self.config.num_heads, target.shape[1], source_length or self._source_length(source))
            return tuple(np.zeros(shape, "float32") for _ in range(self.config.depths[1]))
        arrays = {"source": self._rounded_source(source), "target": self._rounded(target)}
        scores = self._compiled(teacher_forcing.attention_scores).run(**arrays)
        return tuple(x[:, :, : target.shape[1], :source_length] for x in scores)

    def mean_attention(self, source, target) -> np.ndarray:
        """Computes the mean of `attention_scores` over heads and layers.

        Args:
            source: the source; see `generate`.
            target: int ids `(batch, target_length)`; see `token_log_probs`.

        Returns:
            Float32 array `(batch, target_length, source_length)`.
        """
        return teacher_forcing.mean_attention(self.attention_scores(source, target), np.mean)

    @property
    def source_spec(self):
        """The source as a symbolic tensor."""
        return self.input["source"]

    def _checked_source(self, source):
        if self.parts.source is not None:
            return self._checked_length(super()._checked_source(source))
        return checked_ids("source", source, self.config.source_vocabulary, self.config.max_length)

    def _checked_length(self, source):
        """Raises an error if a source that is not token ids has more positions than are learned."""
        longest = self.config.max_length
        if longest:
            shapes = keras.tree.map_structure(lambda x: keras.KerasTensor(x.shape, str(x.dtype)), source)
            length = self.parts.source.compute_output_spec(shapes).shape[1]
            if length > longest:
                raise ValueError(
                    f"`source` must have at most `max_length`={longest} positions, the number of learned ones. "
                    f"Received: {length}"
                )
        return source

    def _check_shortlist(self, shortlist, strategy):
        if self.parts.source is not None:
            super()._check_shortlist(shortlist, strategy)
        shortlist.check(self.config, strategy)

    def _rounded_source(self, source):
        return self._rounded(source) if self.parts.source is None else source

    def _source_length(self, source):
        return source.shape[1] if self.parts.source is None else super()._source_length(source)
