"""The decoder layer and the decoder stack."""

import keras

from keras_transformer import masks
from keras_transformer.cache import KeyValue
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.block import (
    TransformerBlock,
    decoding_method,
    outputs_of,
    unpacked,
)
from keras_transformer.layers.checks import check_rank
from keras_transformer.layers.configured import shows_arguments_of
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_transformer")
class DecoderLayer(TransformerBlock):
    """Causal self-attention, cross-attention and feed-forward, each in a residual connection.

    The memory is the output of the encoder, to which the cross-attention attends.

    Masking: no target position attends to a later one, or to a target or memory position whose mask is `False`. The
    target mask is passed on unchanged. With a cache, `target_mask` is not applied.

    Args:
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, layer_norm_epsilon: see `TransformerConfig`.
        kernel_initializer, bias_initializer, kernel_regularizer, seed: see `MultiHeadAttention`.
        norm: a normalization layer, of which each residual connection has a copy. Default: layer normalization.
        self_attention, cross_attention: layers that attend to the target and to the memory, instead of a
            `MultiHeadAttention` with these sizes.
        feed_forward: a layer that keeps the shape, instead of a `FeedForward` with these sizes.

    Call arguments:
        target: `(batch, target_length, d_model)`; with a cache also `(batch, d_model)`, one position per row.
        memory: output of the encoder `(batch, source_length, d_model)`, or a `KeyValue` from `project_memory`.
        target_mask: boolean `(batch, target_length)`. Default: the implicit mask.
        memory_mask: boolean `(batch, source_length)`. Default: the implicit mask.
        attention_mask: additional mask of the self-attention: boolean `(batch, target_length, target_length)` or
            `(batch, num_heads, target_length, target_length)`; axes of size 1 broadcast.
        memory_attention_mask: additional mask of the cross-attention: boolean `(batch, target_length, source_length)`
            or `(batch, num_heads, target_length, source_length)`; axes of size 1 broadcast.
        attention_bias: added to the scores of the self-attention; see `MultiHeadAttention`.
        cache: `KeyValue` of the earlier target positions, from `empty_cache` or the previous call.
        offset: position of the first target token.
        return_attention_scores: whether to also return the cross-attention weights.

    Returns:
        Output of the shape of `target`. With `return_attention_scores` also the cross-attention weights `(batch,
        num_heads, target_length, source_length)`. With `cache` also the updated cache, last.

    Raises:
        ValueError: if a size is not positive, if a rate is not in [0, 1], or if `d_model` is not a multiple of
            `num_heads` and `d_k` or `d_v` is not given. In a call: if `target` or `memory` has the wrong rank or
            width, or a mask has a float dtype.

    Example:

    >>> layer = DecoderLayer(d_model=4, num_heads=2, d_ff=16)
    >>> layer(np.zeros((2, 5, 4), "float32"), np.zeros((2, 7, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, §3.1.
    """

    @shows_arguments_of(TransformerBlock)
    def __init__(self, *sizes, self_attention=None, cross_attention=None, feed_forward=None, **kwargs):
        super().__init__(*sizes, **kwargs)
        self.self_attention = self._residual("self_attention", self_attention, MultiHeadAttention)
        self.cross_attention = self._residual("cross_attention", cross_attention, MultiHeadAttention)
        self.feed_forward = self._residual("feed_forward", feed_forward, FeedForward)

    def build(self, target_shape, memory_shape):
        self._check_shape("target", target_shape)
        self.self_attention.build(target_shape)
        self.cross_attention.build(target_shape, value_shape=memory_shape)
        self.feed_forward.build(target_shape)

    def compute_output_shape(self, target_shape, memory_shape):  # pyright: ignore[reportIncompatibleMethodOverride]
        return target_shape

    def call(
        self,
        target,
        memory,
        target_mask=None,
        memory_mask=None,
        attention_mask=None,
        memory_attention_mask=None,
        attention_bias=None,
        cache=None,
        offset=0,
        return_attention_scores=False,
    ):
        self._check_shape("target", target.shape, cache)
        if not isinstance(memory, KeyValue):
            check_rank("memory", memory.shape)
        x, *updated_cache = self._attend(
            target,
            target_mask,
            cache,
            offset,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=True,
        )
        x, *scores = outputs_of(
            self.cross_attention.call,
            x,
            memory,
            value_mask=masks.resolve(memory_mask, memory),
            attention_mask=memory_attention_mask,
            return_attention_scores=return_attention_scores,
        )
        return unpacked([self.feed_forward.call(x), *scores, *updated_cache])

    def project_memory(self, memory) -> KeyValue:
        """Projects the keys and values of the memory, once per search.

        Args:
            memory: `(batch, source_length, d_model)`.

        Returns:
            `KeyValue` of `(batch, num_heads, source_length, d_k)` and `(…, d_v)`.
        """
        return decoding_method(self.cross_attention.sublayer, "project")(memory)

    def empty_cache(self, batch_size, max_length) -> KeyValue:
        """Makes a self-attention cache for `batch_size` rows; see `MultiHeadAttention.empty_cache`."""
        return decoding_method(self.self_attention.sublayer, "empty_cache")(batch_size, max_length)


@keras.saving.register_keras_serializable(package="keras_transformer")
class Decoder(TransformerStack):
    """N decoder layers, and a layer normalization if `final_norm`.

    Masking: as in `DecoderLayer`.

    Args:
        layer: a layer to copy, such as a `DecoderLayer`. Each copy has weights and dropout of its own.
        num_layers: number of layers N.
        final_norm: normalize the output: a bool, or a normalization layer. Default: `norm_first` of the layers.
        shared_positions: a `PositionScheme` whose bias all layers share, such as `RelativePositionBias`.
        **arguments: arguments of `DecoderLayer`, instead of `layer`; `name`, `dtype` and `trainable`.

    Call arguments:
        target: embedded tokens with positions, `(batch, target_length, d_model)`; with a cache also
            `(batch, d_model)`, one position per row.
        memory: output of the encoder `(batch, source_length, d_model)`, or the result of `project_memory`.
        target_mask: boolean `(batch, target_length)`. Default: the implicit mask.
        memory_mask: boolean `(batch, source_length)`. Default: the implicit mask.
        attention_mask: additional mask of the self-attention: boolean `(batch, target_length, target_length)` or
            `(batch, num_heads, target_length, target_length)`; axes of size 1 broadcast.
        memory_attention_mask: additional mask of the cross-attention: boolean `(batch, target_length, source_length)`
            or `(batch, num_heads, target_length, source_length)`; axes of size 1 broadcast.
        cache: one `KeyValue` per layer, from `empty_cache` or the previous call.
        offset: position of the first target token.
        return_attention_scores: whether to also return the cross-attention weights of each layer.

    Returns:
        Output of the shape of `target`. With `return_attention_scores` also a tuple of the cross-attention weights
        `(batch, num_heads, target_length, source_length)` of each layer. With `cache` also the updated caches, last.

    Raises:
        ValueError: if `num_layers` is not positive; see also `DecoderLayer`.

    Example:

    >>> decoder = Decoder(num_layers=2, d_model=4, num_heads=2, d_ff=16)
    >>> decoder(np.zeros((2, 5, 4), "float32"), np.zeros((2, 7, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, §3.1.
    """

    layer_class = DecoderLayer

    # Keras passes shapes by the names of the call arguments.
    def build(self, target_shape, memory_shape):  # pyright: ignore[reportIncompatibleMethodOverride]
        super().build(target_shape, memory_shape)

    def compute_output_shape(self, target_shape, memory_shape):  # pyright: ignore[reportIncompatibleMethodOverride]
        return target_shape

    def call(
        self,
        target,
        memory,
        target_mask=None,
        memory_mask=None,
        attention_mask=None,
        memory_attention_mask=None,
        cache=None,
        offset=0,
        return_attention_scores=False,
    ):
        memories = memory if isinstance(memory, tuple) else [memory] * self.num_layers
        return self._run_layers(
            target,
            {"memory": memories, "cache": cache or [None] * self.num_layers},
            target_mask=masks.resolve(target_mask, target),
            memory_mask=masks.resolve(memory_mask, memory),
            attention_mask=attention_mask,
            memory_attention_mask=memory_attention_mask,
            attention_bias=self._shared_bias(target, cache, offset),
            offset=None if cache is None else offset,
            return_attention_scores=return_attention_scores,
        )

    def project_memory(self, memory) -> tuple[KeyValue, ...]:
        """Projects the keys and values of the memory for each layer, once per search.

        Args:
            memory: `(batch, source_length, d_model)`.

        Returns:
            One `KeyValue` per layer.
        """
        return tuple(decoding_method(layer, "project_memory")(memory) for layer in self.layers)

    def empty_cache(self, batch_size, max_length) -> tuple[KeyValue, ...]:
        """Makes one self-attention cache per layer; see `MultiHeadAttention.empty_cache`."""
        return self._empty_caches(batch_size, max_length)
