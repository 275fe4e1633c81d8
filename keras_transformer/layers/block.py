"""Base classes of encoder and decoder layers and stacks.

The layers run their residual connections by `call` instead of `__call__`, because `__call__` rejects keyword
arguments that mix tensors with flags. Dtype and masks, which `__call__` would handle, are already those of the layer.
"""

import inspect

import keras

from keras_transformer.checks import at_least, require, within
from keras_transformer.layers.adaptation import Composite
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.checks import check_rank, check_width
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.residual import ResidualConnection

#: Names of the constructor arguments that layers and stacks share.
SHARED_ARGUMENTS = (
    "d_model num_heads d_ff d_k d_v dropout attention_dropout activation_dropout activation use_bias "
    "norm_first layer_norm_epsilon"
).split()

#: Names of the sequences in a call -> names of their padding masks.
PADDING_MASKS = {"inputs": "mask", "target": "target_mask", "memory": "memory_mask"}


class TransformerBlock(Composite):
    """Base class of encoder and decoder layers and stacks, with their shared arguments.

    Args:
        d_model: width of the residual stream.
        num_heads: number of attention heads.
        d_ff: inner width of the feed-forward layer.
        d_k: width of one head's queries and keys. Default: `d_model / num_heads`.
        d_v: width of one head's values. Default: `d_model / num_heads`.
        dropout: dropout rate on the output of each sub-layer.
        attention_dropout: dropout rate on the attention weights.
        activation_dropout: dropout rate on the inner activations of the feed-forward layer.
        activation: name of a Keras activation.
        use_bias: whether projections and the feed-forward layer have biases.
        norm_first: normalize before each sub-layer instead of after the residual sum.
        layer_norm_epsilon: added to the variance in layer normalization.
    """

    def __init__(
        self,
        d_model,
        num_heads,
        d_ff,
        d_k=None,
        d_v=None,
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation="relu",
        use_bias=True,
        norm_first=False,
        layer_norm_epsilon=1e-5,
        **kwargs,
    ):
        super().__init__(**kwargs)
        rates = {"dropout": dropout, "attention_dropout": attention_dropout, "activation_dropout": activation_dropout}
        require(within("[0, 1]", **rates))
        self.supports_masking = True
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.d_k = d_k
        self.d_v = d_v
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.activation = activation
        self.use_bias = use_bias
        self.norm_first = norm_first
        self.layer_norm_epsilon = layer_norm_epsilon
        self._make_parts()

    def _make_parts(self):
        """Makes the sub-layers of a layer. Stacks make theirs in `__init__`."""

    def compute_output_spec(self, *args, **kwargs):
        # Tracing `call` takes most of the time of building a model. It is needed only if an argument adds outputs or
        # may be wrong.
        arguments = inspect.signature(self.call).bind(*args, **kwargs).arguments
        is_plain = _is_plain_call(arguments, self.d_model, self.compute_dtype)
        layer = keras.Layer if is_plain else keras.Operation
        return layer.compute_output_spec(self, *args, **kwargs)

    def sizes(self):
        """Returns the shared arguments as a dictionary."""
        return {name: getattr(self, name) for name in SHARED_ARGUMENTS}

    def get_config(self):
        return {**super().get_config(), **self.sizes()}

    def _attention(self, name):
        attention = MultiHeadAttention(
            self.d_model,
            self.num_heads,
            self.d_k,
            self.d_v,
            self.attention_dropout,
            self.use_bias,
            dtype=self.dtype_policy,
            name="attention",
        )
        return self._residual(attention, name)

    def _feed_forward(self):
        feed_forward = FeedForward(
            self.d_model,
            self.d_ff,
            self.activation,
            self.activation_dropout,
            self.use_bias,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        return self._residual(feed_forward, "feed_forward")

    def _residual(self, sublayer, name):
        return ResidualConnection(
            sublayer, self.dropout, self.norm_first, self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )


class SelfAttentionBlock(TransformerBlock):
    """Base class of layers without cross-attention: self-attention and feed-forward, each in a residual connection.

    Args:
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, layer_norm_epsilon: see `TransformerBlock`.
    """

    def _make_parts(self):
        self.self_attention = self._attention("self_attention")
        self.feed_forward = self._feed_forward()

    def build(self, inputs_shape):
        check_width("inputs", inputs_shape, self.d_model)
        self.self_attention.build(inputs_shape)
        self.feed_forward.build(inputs_shape)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def _run(self, inputs, **attention):
        """Runs both sub-layers. Extra outputs of the attention are returned after the output."""
        check_rank("inputs", inputs.shape, one_position=attention.get("cache") is not None)
        check_width("inputs", inputs.shape, self.d_model)
        attended = self.self_attention.call(inputs, **attention)
        x, *others = attended if isinstance(attended, tuple) else (attended,)
        x = self.feed_forward.call(x)
        return (x, *others) if others else x


class TransformerStack(TransformerBlock):
    """Base class of `Encoder`, `Decoder` and `CausalDecoder`: N layers and an optional final layer normalization.

    Args:
        num_layers: number of layers N.
        final_norm: normalize the output. Default: the value of `norm_first`, since the output of a pre-norm layer is
            not normalized.
        d_model, num_heads, d_ff, d_k, d_v, dropout, attention_dropout, activation_dropout, activation,
            use_bias, norm_first, layer_norm_epsilon: see `TransformerBlock`.
    """

    layer_class: type[TransformerBlock]

    def __init__(
        self,
        num_layers,
        d_model,
        num_heads,
        d_ff,
        d_k=None,
        d_v=None,
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation="relu",
        use_bias=True,
        norm_first=False,
        layer_norm_epsilon=1e-5,
        final_norm=None,
        **kwargs,
    ):
        super().__init__(
            d_model,
            num_heads,
            d_ff,
            d_k,
            d_v,
            dropout,
            attention_dropout,
            activation_dropout,
            activation,
            use_bias,
            norm_first,
            layer_norm_epsilon,
            **kwargs,
        )
        require(at_least(1, num_layers=num_layers))
        self.num_layers = num_layers
        self.final_norm = self.norm_first if final_norm is None else final_norm
        self.layers = [
            self.layer_class(**self.sizes(), dtype=self.dtype_policy, name=f"layer_{i}") for i in range(num_layers)
        ]
        self.norm = None
        if self.final_norm:
            self.norm = LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm")

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers, "final_norm": self.final_norm}

    def _build_layers(self, inputs_shape, *others):
        for layer in self.layers:
            layer.build(inputs_shape, *others)
        if self.norm is not None:
            self.norm.build(inputs_shape)

    def _run_layers(self, x, each, **shared):
        """Runs the layers and the normalization. Other outputs of the layers are returned after x, each as a tuple.

        Args:
            x: input of the first layer.
            each: name of an argument of the layers -> its values, one per layer.
            **shared: arguments that are the same for all layers.
        """
        extra_outputs = []
        for i, layer in enumerate(self.layers):
            result = layer(x, **{name: values[i] for name, values in each.items()}, **shared)
            x, *others = result if isinstance(result, tuple) else (result,)
            extra_outputs.append(others)
        x = x if self.norm is None else self.norm(x)
        others = [*zip(*extra_outputs, strict=True)]  # Weights of all layers, caches of all layers.
        return (x, *others) if others else x


def _is_plain_call(arguments, d_model, dtype):
    """Whether a call has only symbolic sequences `(batch, length, d_model)` and padding masks that fit them."""
    others = dict(arguments)
    sequences = [(others.pop(name), others.pop(mask, None)) for name, mask in PADDING_MASKS.items() if name in others]
    return (
        all(_is_plain_sequence(sequence, mask, d_model, dtype) for sequence, mask in sequences)
        and len({sequence.shape[0] for sequence, _ in sequences}) == 1
        and all(value is None or (isinstance(value, int) and value == 0) for value in others.values())
    )


def _is_plain_sequence(sequence, mask, d_model, dtype):
    return (
        isinstance(sequence, keras.KerasTensor)
        and len(sequence.shape) == 3
        and sequence.shape[-1] == d_model
        and sequence.dtype == dtype
        and (mask is None or _is_padding_mask(mask, sequence))
    )


def _is_padding_mask(mask, sequence):
    return isinstance(mask, keras.KerasTensor) and mask.dtype == "bool" and mask.shape == sequence.shape[:2]
