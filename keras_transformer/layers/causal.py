"""The decoder layer without cross-attention, and its stack."""

import keras

from keras_transformer import masks
from keras_transformer.cache import KeyValue
from keras_transformer.layers.block import SelfAttentionBlock, TransformerStack


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoderLayer(SelfAttentionBlock):
    """Causal self-attention and feed-forward, each in a residual connection: a `DecoderLayer` without cross-attention.

    Masking: no position attends to a later position or to one whose mask is `False`. The mask is passed on unchanged.
    With a cache, `mask` is not applied.

    Args:
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, layer_norm_epsilon: see `TransformerConfig`.

    Call arguments:
        inputs: `(batch, length, d_model)`; with a cache also `(batch, d_model)`, one position per row.
        mask: boolean `(batch, length)`. Default: the implicit mask.
        cache: `KeyValue` of the earlier positions, from `empty_cache` or the previous call.
        offset: position of the first input.
        return_attention_scores: whether to also return the attention weights.

    Returns:
        Output of the shape of `inputs`. With `return_attention_scores` also the weights `(batch, num_heads, length,
        length)`. With `cache` also the updated cache, last.

    Raises:
        ValueError: if a size is not positive, if a rate is not in [0, 1], or if `d_model` is not a multiple of
            `num_heads` and `d_k` or `d_v` is not given. In a call: if `inputs` has the wrong rank or width, or a mask
            has a float dtype.

    Example:

    >>> layer = CausalDecoderLayer(d_model=4, num_heads=2, d_ff=16)
    >>> layer(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", §4.2.3.
    """

    def call(self, inputs, mask=None, cache=None, offset=0, return_attention_scores=False):
        return self._run(
            inputs,
            query_mask=masks.resolve(mask, inputs),
            use_causal_mask=True,
            cache=cache,
            offset=offset,
            return_attention_scores=return_attention_scores,
        )

    def empty_cache(self, like, batch_size, max_length) -> KeyValue:
        """Makes a cache for `batch_size` rows; see `MultiHeadAttention.empty_cache`."""
        return self.self_attention.sublayer.empty_cache(like, batch_size, max_length)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoder(TransformerStack):
    """N decoder layers without cross-attention, and a layer normalization if `final_norm`.

    Masking: as in `CausalDecoderLayer`.

    Args:
        num_layers: number of layers N.
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, final_norm, layer_norm_epsilon: see `TransformerConfig`.

    Call arguments:
        inputs: embedded tokens with positions, `(batch, length, d_model)`; with a cache also `(batch,
            d_model)`, one position per row.
        mask: boolean `(batch, length)`. Default: the implicit mask.
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
        Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", §4.2.3.
    """

    layer_class = CausalDecoderLayer

    def build(self, inputs_shape):
        self._build_layers(inputs_shape)

    def call(self, inputs, mask=None, cache=None, offset=0, return_attention_scores=False):
        return self._run_layers(
            inputs,
            {"cache": cache or [None] * self.num_layers},
            mask=masks.resolve(mask, inputs),
            offset=offset,
            return_attention_scores=return_attention_scores,
        )

    def empty_cache(self, like, batch_size, max_length) -> tuple[KeyValue, ...]:
        """Makes one cache per layer; see `MultiHeadAttention.empty_cache`."""
        return tuple(layer.empty_cache(like, batch_size, max_length) for layer in self.layers)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape
