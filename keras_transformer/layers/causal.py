"""Decoder layers without cross-attention, and their stack."""

import functools

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.cache import KeyValue
from keras_transformer.layers.block import decoding_method
from keras_transformer.layers.checks import check_no_masks
from keras_transformer.layers.encoder import SelfAttentionBlock
from keras_transformer.layers.stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoderLayer(SelfAttentionBlock):
    """Causal self-attention and feed-forward, each in a residual connection: a `DecoderLayer` without cross-attention.

    Masking: no position attends to a later position, except in a prefix, or to one whose mask is `False`. The mask is
    passed on unchanged. With a cache, `mask` is not applied.

    Args:
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, layer_norm_epsilon: see `TransformerConfig`.
        kernel_initializer, bias_initializer, kernel_regularizer, seed: see `MultiHeadAttention`.
        norm: a normalization layer, of which each residual connection has a copy. Default: layer normalization.
        attention: a layer that attends to its query, instead of a `MultiHeadAttention` with these sizes.
        feed_forward: a layer that keeps the shape, instead of a `FeedForward` with these sizes.

    Call arguments:
        inputs: `(batch, length, d_model)`; with a cache also `(batch, d_model)`, one position per row.
        mask: boolean `(batch, length)`. Default: the implicit mask.
        attention_mask: additional mask: boolean `(batch, length, length)` or `(batch, num_heads, length, length)`; axes
            of size 1 broadcast.
        prefix_mask: boolean `(batch, length)`, `True` at positions to which earlier ones may attend, too, such as
            those of a prompt; see `masks.prefix_lm_mask`. It must not be given with a cache. Default: none.
        attention_bias: added to the attention scores; see `MultiHeadAttention`.
        cache: `KeyValue` of the earlier positions, from `empty_cache` or the previous call.
        offset: position of the first input.
        return_attention_scores: whether to also return the attention weights.

    Returns:
        Output of the shape of `inputs`. With `return_attention_scores` also the weights `(batch, num_heads, length,
        length)`. With `cache` also the updated cache, last.

    Raises:
        ValueError: if a size is not positive, if a rate is not in [0, 1], or if `d_model` is not a multiple of
            `num_heads` and `d_k` or `d_v` is not given. In a call: if `inputs` has the wrong rank or width, a mask has
            a float dtype, or `prefix_mask` is given with a cache.

    Example:

    >>> layer = CausalDecoderLayer(d_model=4, num_heads=2, d_ff=16)
    >>> layer(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", §4.2.3.
    """

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        prefix_mask=None,
        attention_bias=None,
        cache=None,
        offset=0,
        return_attention_scores=False,
    ):
        if prefix_mask is not None:
            check_no_masks(cache, prefix_mask=prefix_mask)
            parts = [masks.prefix_lm_mask(prefix_mask), *([] if attention_mask is None else [attention_mask])]
            attention_mask = functools.reduce(ops.logical_and, [masks.attention_mask(mask=part) for part in parts])
        return self._run(
            inputs,
            mask,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            cache=cache,
            offset=offset,
            use_causal_mask=prefix_mask is None,
            return_attention_scores=return_attention_scores,
        )

    def empty_cache(self, batch_size, max_length) -> KeyValue:
        """Makes a cache for `batch_size` rows; see `MultiHeadAttention.empty_cache`."""
        return decoding_method(self.self_attention.sublayer, "empty_cache")(batch_size, max_length)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoder(TransformerStack):
    """N decoder layers without cross-attention, and a layer normalization if `final_norm`.

    Masking: as in `CausalDecoderLayer`.

    Args:
        layer: a layer to copy, such as a `CausalDecoderLayer`. Each copy has weights and dropout of its own.
        num_layers: number of layers N.
        final_norm: normalize the output: a bool, or a normalization layer. Default: `norm_first` of the layers.
        shared_positions: a `PositionScheme` whose bias all layers share, such as `RelativePositionBias`.
        **arguments: arguments of `CausalDecoderLayer`, instead of `layer`; `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: embedded tokens with positions, `(batch, length, d_model)`; with a cache also `(batch,
            d_model)`, one position per row.
        mask: boolean `(batch, length)`. Default: the implicit mask.
        attention_mask: additional mask: boolean `(batch, length, length)` or `(batch, num_heads, length, length)`; axes
            of size 1 broadcast.
        prefix_mask: boolean `(batch, length)`, `True` in a prefix; see `CausalDecoderLayer`.
        cache: one `KeyValue` per layer, from `empty_cache` or the previous call.
        offset: position of the first input.
        return_attention_scores: whether to also return the attention weights of each layer.

    Returns:
        Output of the shape of `inputs`. With `return_attention_scores` also a tuple of the weights `(batch, num_heads,
        length, length)` of each layer. With `cache` also the updated caches, last.

    Raises:
        ValueError: if `num_layers` is not positive; see also `CausalDecoderLayer`.

    Example:

    >>> decoder = CausalDecoder(num_layers=2, d_model=4, num_heads=2, d_ff=16)
    >>> decoder(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", §4.2.3. Prefix: Raffel et al. 2020,
        §3.2.1.
    """

    layer_class = CausalDecoderLayer

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        prefix_mask=None,
        cache=None,
        offset=0,
        return_attention_scores=False,
    ):
        return self._run_layers(
            inputs,
            {"cache": cache or [None] * self.num_layers},
            mask=masks.resolve(mask, inputs),
            attention_mask=attention_mask,
            prefix_mask=prefix_mask,
            attention_bias=self._shared_bias(inputs, cache, offset),
            offset=None if cache is None else offset,
            return_attention_scores=return_attention_scores,
        )

    def empty_cache(self, batch_size, max_length) -> tuple[KeyValue, ...]:
        """Makes one cache per layer; see `MultiHeadAttention.empty_cache`."""
        return self._empty_caches(batch_size, max_length)
