"""Decoder layers without a memory, and their stack."""

import keras

from keras_transformer import masks
from keras_transformer.cache import KeyValue
from keras_transformer.layers.block import SelfAttentionBlock, TransformerStack


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoderLayer(SelfAttentionBlock):
    """Causal self-attention and feed-forward, each in a residual connection: `DecoderLayer` without a memory.

    Masking: no position attends to a later one; positions whose mask is `False` are attended by none;
    the mask passes through. With a cache `mask` is not applied.

    Args:
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, layer_norm_epsilon: see `TransformerConfig`.

    Call arguments:
        inputs: `(batch, length, d_model)`; with a cache also `(batch, d_model)`, one position.
        mask: boolean `(batch, length)`. Default: the implicit mask.
        cache: `KeyValue` of the earlier positions, from `empty_cache` or the last call.
        offset: position of the first input.
        return_attention_scores: also return the attention weights.

    Returns:
        The shape of `inputs`; followed by the weights `(batch, num_heads, length, length)` if asked for;
        followed by the grown cache if one was given.

    Raises:
        ValueError: if a size is not positive, a rate not in [0, 1], or `d_model` not a multiple of
            `num_heads` where a head's width is left to it; in a call, if `inputs` is not `d_model` wide or
            has another rank, or a mask is of a float dtype.

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
        """A cache for `batch_size` rows; see `keras_transformer.cache.empty`."""
        return self.self_attention.sublayer.empty_cache(like, batch_size, max_length)


@keras.saving.register_keras_serializable(package="keras_transformer")
class CausalDecoder(TransformerStack):
    """N decoder layers without a memory, with a final layer normalisation where `final_norm`.

    Masking: as in `CausalDecoderLayer`.

    Args:
        num_layers: N.
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, final_norm, layer_norm_epsilon: see `TransformerConfig`.

    Call arguments:
        inputs: embedded tokens with positions, `(batch, length, d_model)`; with a cache also `(batch,
            d_model)`, one position.
        mask: boolean `(batch, length)`. Default: the implicit mask.
        cache: one `KeyValue` a layer, from `empty_cache` or the last call.
        offset: position of the first input.
        return_attention_scores: also return each layer's attention weights.

    Returns:
        The shape of `inputs`; followed by a tuple of the weights, `(batch, num_heads, length, length)` of
        each layer, if asked for; followed by the grown caches if some were given.

    Raises:
        ValueError: if `num_layers` is not positive, and as of `CausalDecoderLayer`.

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
        mask = masks.resolve(mask, inputs)
        x, of_layers = inputs, []
        for i, layer in enumerate(self.layers):
            result = layer(
                x,
                mask=mask,
                cache=None if cache is None else cache[i],
                offset=offset,
                return_attention_scores=return_attention_scores,
            )
            x, *others = result if isinstance(result, tuple) else (result,)
            of_layers.append(others)
        others = [*zip(*of_layers, strict=True)]  # All layers' weights, all layers' caches.
        return (self._normalize(x), *others) if others else self._normalize(x)

    def empty_cache(self, like, batch_size, max_length) -> tuple[KeyValue, ...]:
        """One cache a layer; see `keras_transformer.cache.empty`."""
        return tuple(layer.empty_cache(like, batch_size, max_length) for layer in self.layers)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape
