"""The encoder layer and the encoder stack."""

import keras

from keras_transformer import masks
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.block import TransformerBlock, unpacked
from keras_transformer.layers.configured import shows_arguments_of
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.stack import TransformerStack


class SelfAttentionBlock(TransformerBlock):
    """Base class of layers without cross-attention: self-attention and feed-forward.

    Args:
        *sizes, **kwargs: arguments of `TransformerBlock`.
        attention: a layer that attends to its query, instead of a `MultiHeadAttention`.
        feed_forward: a layer from `(batch, length, d_model)` to the same shape, instead of a `FeedForward`.
    """

    @shows_arguments_of(TransformerBlock)
    def __init__(self, *sizes, attention=None, feed_forward=None, **kwargs):
        super().__init__(*sizes, **kwargs)
        self.self_attention = self._residual("self_attention", attention, MultiHeadAttention, "attention")
        self.feed_forward = self._residual("feed_forward", feed_forward, FeedForward)

    def build(self, inputs_shape):
        self._check_shape("inputs", inputs_shape)
        self.self_attention.build(inputs_shape)
        self.feed_forward.build(inputs_shape)

    def _run(self, inputs, mask, **attention):
        """Runs both parts. Other outputs of the attention are returned after the output."""
        self._check_shape("inputs", inputs.shape, attention.get("cache"))
        x, *others = self._attend(inputs, mask, **attention)
        return unpacked([self.feed_forward.call(x), *others])


@keras.saving.register_keras_serializable(package="keras_transformer")
class EncoderLayer(SelfAttentionBlock):
    """Self-attention and feed-forward, each in a residual connection.

    Masking: no position attends to one whose mask is `False`. The mask is passed on unchanged.

    Args:
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, layer_norm_epsilon: see `TransformerConfig`.
        kernel_initializer, bias_initializer, kernel_regularizer, seed: see `MultiHeadAttention`.
        norm: a normalization layer, of which each residual connection has a copy. Default: layer normalization.
        attention: a layer that attends to its query, instead of a `MultiHeadAttention` with these sizes.
        feed_forward: a layer that keeps the shape, instead of a `FeedForward` with these sizes.

    Call arguments:
        inputs: `(batch, length, d_model)`.
        mask: boolean `(batch, length)`, `False` at padding. Default: the implicit mask.
        attention_mask: boolean `(batch, length, length)` or `(batch, num_heads, length, length)`; axes of size 1
            broadcast.
        attention_bias: added to the attention scores; see `MultiHeadAttention`.
        return_attention_scores: whether to also return the attention weights.

    Returns:
        Output `(batch, length, d_model)`. With `return_attention_scores` also the weights `(batch, num_heads, length,
        length)`.

    Raises:
        ValueError: if a size is not positive, if a rate is not in [0, 1], or if `d_model` is not a multiple of
            `num_heads` and `d_k` or `d_v` is not given. In a call: if `inputs` has the wrong rank or width, or a mask
            has a float dtype.

    Example:

    >>> layer = EncoderLayer(d_model=4, num_heads=2, d_ff=16)
    >>> layer(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, §3.1.
    """

    def call(self, inputs, mask=None, attention_mask=None, attention_bias=None, return_attention_scores=False):
        return self._run(
            inputs,
            mask,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            return_attention_scores=return_attention_scores,
        )


@keras.saving.register_keras_serializable(package="keras_transformer")
class Encoder(TransformerStack):
    """N encoder layers, and a layer normalization if `final_norm`.

    Masking: no position attends to one whose mask is `False`. The mask is passed on unchanged.

    Args:
        layer: a layer to copy, such as an `EncoderLayer`. Each copy has weights and dropout of its own.
        num_layers: number of layers N.
        final_norm: normalize the output: a bool, or a normalization layer. Default: `norm_first` of the layers.
        shared_positions: a `PositionScheme` whose bias all layers share, such as `RelativePositionBias`.
        **arguments: arguments of `EncoderLayer`, instead of `layer`; `name`, `dtype` and `trainable`.

    Call arguments:
        inputs: embedded tokens with positions, `(batch, length, d_model)`.
        mask: boolean `(batch, length)`, `False` at padding. Default: the implicit mask.
        attention_mask: boolean `(batch, length, length)` or `(batch, num_heads, length, length)`; axes of size 1
            broadcast.
        return_attention_scores: whether to also return the attention weights of each layer.

    Returns:
        Output `(batch, length, d_model)`. With `return_attention_scores` also a tuple of the weights of each layer,
        `(batch, num_heads, length, length)`.

    Raises:
        ValueError: if `num_layers` is not positive; see also `EncoderLayer`.

    Example:

    >>> encoder = Encoder(num_layers=2, d_model=4, num_heads=2, d_ff=16)
    >>> encoder(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, §3.1.
    """

    layer_class = EncoderLayer

    def call(self, inputs, mask=None, attention_mask=None, return_attention_scores=False):
        return self._run_layers(
            inputs,
            {},
            mask=masks.resolve(mask, inputs),
            attention_mask=attention_mask,
            attention_bias=self._shared_bias(inputs),
            return_attention_scores=return_attention_scores,
        )
