"""Base classes of encoder and decoder layers, which are made of exchangeable parts, and of their stacks.

The layers run their residual connections by `call` instead of `__call__`, because `__call__` rejects keyword
arguments that mix tensors with flags. Dtype and masks, which `__call__` would handle, are already those of the layer.
"""

import functools
import inspect
from typing import Any

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.cache import length_after
from keras_transformer.checks import at_least, require, within
from keras_transformer.layers.adaptation import Composite
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.checks import check_rank, check_width
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.parts import adopt, claim, copied_arguments, copy_layer, serialized_part
from keras_transformer.layers.positional_encoding import consecutive_positions
from keras_transformer.layers.projections import Projections
from keras_transformer.layers.residual import ResidualConnection
from keras_transformer.layers.seeds import mix_seed, part_initializer

_PACKAGE = __name__.partition(".")[0]
#: Kind of part -> its name, and the attributes of a block that are its first arguments. The first two are required.
_PARTS = {
    MultiHeadAttention: ("attention", "d_model num_heads d_k d_v attention_dropout use_bias"),
    FeedForward: ("feed_forward", "d_model d_ff activation activation_dropout use_bias"),
}


class LayerOfParts(Composite):
    """Base class of layers and stacks. The output has the shape of the first input.

    Attributes:
        d_model: width of the inputs, or `None` if it is not known before `build`.
    """

    d_model: int | None

    def compute_output_shape(self, inputs_shape, *others):
        return inputs_shape

    def compute_output_spec(self, *args, **kwargs):
        # Tracing `call` takes most of the time of building a model. It is needed only if an argument adds outputs or
        # may be wrong, or if a part of a user may be.
        arguments = inspect.signature(self.call).bind(*args, **kwargs).arguments.values()
        is_plain = _is_plain_call(arguments, self.d_model, self.compute_dtype) and not self._has_parts_of_users
        return (keras.Layer if is_plain else keras.Operation).compute_output_spec(self, *args, **kwargs)

    def _check_shape(self, name, shape, cache=None):
        check_rank(name, shape, one_position=cache is not None)
        check_width(name, shape, self.d_model or shape[-1])

    @functools.cached_property
    def _has_parts_of_users(self):
        """Whether a layer inside is a model, or a class of neither Keras nor this package."""
        return any(
            isinstance(x, keras.Model) or type(x).__module__.split(".")[0] not in ("keras", _PACKAGE)
            for x in self._flatten_layers()
        )

    def _own(self, part):
        """Makes a layer that a user gives a part of this one, and returns it."""
        claim(part, self)
        return adopt(part, self.dtype_policy)


class TransformerBlock(LayerOfParts, Projections):
    """Base class of encoder and decoder layers: parts, each in a residual connection.

    A part that is not given is made from the sizes.

    Args:
        d_model: width of the residual stream.
        num_heads: number of attention heads.
        d_ff: inner width of the feed-forward layer.
        d_k: width of one head's queries and keys. Default: `d_model / num_heads`.
        d_v: width of one head's values. Default: `d_model / num_heads`.
        dropout: dropout rate on the output of each part.
        attention_dropout: dropout rate on the attention weights.
        activation_dropout: dropout rate on the inner activations of the feed-forward layer.
        activation: name of a Keras activation.
        use_bias: whether projections and the feed-forward layer have biases.
        norm_first: normalize before each part instead of after the residual sum.
        layer_norm_epsilon: added to the variance in layer normalization.
        kernel_initializer: initializer of the kernels. Each kernel gets one of its own; see `MultiHeadAttention`.
        bias_initializer: initializer of the biases, likewise.
        kernel_regularizer: regularizer of the kernels.
        seed: int, for equal initial weights and dropout in each run. Default: seeds are drawn from Python's `random`
            module.
        norm: normalization layer. Each residual connection gets a copy. Default: layer normalization.
    """

    def __init__(
        self,
        d_model=None,
        num_heads=None,
        d_ff=None,
        d_k=None,
        d_v=None,
        dropout=0.1,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation="relu",
        use_bias=True,
        norm_first=False,
        layer_norm_epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        seed=None,
        norm=None,
        **kwargs,
    ):
        super().__init__(kernel_initializer, bias_initializer, kernel_regularizer, seed, **kwargs)
        rates = {"dropout": dropout, "attention_dropout": attention_dropout, "activation_dropout": activation_dropout}
        require(within("[0, 1]", **rates), _norm_problems(norm))
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
        # Not the layer itself: Keras would save it beside its copies.
        self._norm = norm and serialized_part(norm)
        self._given_parts = {}  # Argument -> attribute with the residual connection of the given part, or `None`.

    def make_norm(self):
        """Makes a normalization layer as in the residual connections."""
        if self._norm is None:
            return LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm")
        return adopt(copy_layer(self._norm, "norm"), self.dtype_policy)

    def get_config(self):
        config = {name: value for name, value in super().get_config().items() if name not in self._given_parts}
        given = {argument: getattr(self, name).sublayer for argument, name in self._given_parts.items() if name}
        norm = {} if self._norm is None else {"norm": self._norm}
        return {**config, **keras.saving.serialize_keras_object(given), **norm}

    def _residual(self, name, part, kind, argument=None):
        """Makes the residual connection `name` around the part given as `argument`, or else around a new one."""
        argument = argument or name
        self._given_parts[argument] = None if part is None else name
        return ResidualConnection(
            self._make(kind, argument) if part is None else self._own(part),
            self.dropout,
            self.norm_first,
            norm=self.make_norm(),
            seed=mix_seed(self.seed, self._next_index()),
            dtype=self.dtype_policy,
            name=name,
        )

    def _make(self, kind, argument):
        """Makes an attention or a feed-forward layer from the sizes."""
        name, arguments = _PARTS[kind]
        sizes = {size: getattr(self, size) for size in arguments.split()}
        first, second, *_ = sizes
        if None in (sizes[first], sizes[second]):
            raise ValueError(
                f"`{argument}` or `{first}` and `{second}` must be given. "
                f"Received: {first}={sizes[first]}, {second}={sizes[second]}"
            )
        index = self._next_index()
        return kind(
            *sizes.values(),
            kernel_initializer=part_initializer(self.kernel_initializer, index, None),
            bias_initializer=part_initializer(self.bias_initializer, index, None),
            kernel_regularizer=self.kernel_regularizer,
            seed=mix_seed(self.seed, index),
            dtype=self.dtype_policy,
            name=name,
        )

    def _attend(self, inputs, mask, cache=None, offset=0, **options):
        """Runs the self-attention. Returns a list of its outputs."""
        # With a cache, a mask of the new positions does not cover the keys.
        keys = {"value_mask": masks.resolve(mask, inputs)} if cache is None else {"cache": cache, "offset": offset}
        return outputs_of(self.self_attention.call, inputs, **keys, **options)


#: Names of the arguments from which a block makes its parts.
SIZES = tuple(
    name
    for name in inspect.signature(TransformerBlock).parameters
    if name not in (*inspect.signature(Projections).parameters, "norm")
)


class TransformerStack(LayerOfParts):
    """Base class of `Encoder`, `Decoder` and `CausalDecoder`: N copies of a layer, and an optional final normalization.

    Args:
        layer: the layer to copy. Each copy has initial weights and dropout of its own. Default: a new `layer_class`.
        num_layers: number of layers N.
        final_norm: normalize the output: a bool or a normalization layer. Default: the value of `norm_first` of the
            layer, since the output of a pre-norm layer is not normalized.
        shared_positions: a `PositionScheme` whose `attention_bias` is computed once for the self-attentions of all
            layers, such as `RelativePositionBias` in T5.
        name, dtype, trainable: arguments of `keras.layers.Layer`.
        **arguments: arguments of `layer_class`, instead of `layer`.
    """

    layer_class: type[TransformerBlock]

    def __init__(
        self,
        layer=None,
        num_layers=6,
        final_norm=None,
        shared_positions=None,
        *,
        name=None,
        dtype=None,
        trainable=True,
        **arguments,
    ):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        require(at_least(1, num_layers=num_layers), _layer_problems(layer, arguments))
        self.supports_masking = True
        self.num_layers = num_layers
        given = arguments if layer is None else {"layer": layer}
        # Layers and initializers, as serialized; not the layer itself, which Keras would save beside its copies.
        self._layer_config = {k: serialized_part(v) if hasattr(v, "get_config") else v for k, v in given.items()}
        self.layers = [self._make_layer(i) for i in range(num_layers)]
        self.d_model = getattr(self.layers[0], "d_model", None)
        self.final_norm = getattr(self.layers[0], "norm_first", False) if final_norm is None else final_norm
        self.norm = self._make_norm() if self.final_norm else None
        if shared_positions is not None and not isinstance(self.layers[0], TransformerBlock):
            raise ValueError(
                "`shared_positions` requires layers of this package, whose attention takes `attention_bias`. "
                f"Received: layers of type {type(self.layers[0]).__name__}"
            )
        self.shared_positions = shared_positions and self._own(shared_positions)

    def build(self, inputs_shape, *others):
        for layer in self.layers:
            layer.build(inputs_shape, *others)
        if self.norm is not None:
            self.norm.build(inputs_shape)
        if self.shared_positions is not None:
            attention = self.layers[0].self_attention.sublayer
            num_heads = getattr(attention, "num_heads", self.layers[0].num_heads)
            if num_heads is None:
                raise ValueError(
                    "With `shared_positions`, an attention must have the attribute `num_heads`. "
                    f"Received: {attention.name} of type {type(attention).__name__}"
                )
            self.shared_positions.build((inputs_shape[0], num_heads, None, None))

    def get_config(self):
        return {**super().get_config(), **self._layer_config}

    def _make_layer(self, index):
        name = f"layer_{index}"
        if "layer" in self._layer_config:
            return adopt(copy_layer(self._layer_config["layer"], name, index), self.dtype_policy)
        arguments = copied_arguments(self._layer_config, index)
        return self.layer_class(**arguments, dtype=self.dtype_policy, name=name)

    def _make_norm(self):
        if isinstance(self.final_norm, keras.Layer):
            return self._own(self.final_norm)
        if isinstance(self.layers[0], TransformerBlock):
            return self.layers[0].make_norm()
        return LayerNormalization(dtype=self.dtype_policy, name="norm")

    def _shared_bias(self, x, cache=None, offset=0):
        """What the scheme that all layers share adds to their scores, for queries x at the positions from `offset`."""
        if self.shared_positions is None:
            return None
        length = 1 if len(x.shape) == 2 else ops.shape(x)[1]
        queries = consecutive_positions(length, 0 if cache is None else offset)
        keys = consecutive_positions(length if cache is None else length_after(cache[0], length), 0)
        return self.shared_positions.attention_bias(queries, keys)

    def _empty_caches(self, batch_size, max_length):
        return tuple(decoding_method(layer, "empty_cache")(batch_size, max_length) for layer in self.layers)

    def _run_layers(self, x, each, **shared):
        """Runs the layers and the normalization. Other outputs of the layers are returned after x, each as a tuple.

        Args:
            x: input of the first layer.
            each: name of an argument of the layers -> its values, one per layer.
            **shared: arguments that are the same for all layers.
        """
        extra_outputs = []
        for i, layer in enumerate(self.layers):
            x, *others = outputs_of(layer, x, **{name: values[i] for name, values in each.items()}, **shared)
            extra_outputs.append(others)
        x = x if self.norm is None else self.norm(x)
        return unpacked([x, *zip(*extra_outputs, strict=True)])  # Weights of all layers, caches of all layers.


def decoding_method(layer, name):
    """The method of a layer that decoding step by step needs."""
    if not hasattr(layer, name):
        raise ValueError(
            f"To decode step by step, an attention or decoder layer must have the method `{name}`. "
            f"Received: {layer.name} of type {type(layer).__name__}"
        )
    return getattr(layer, name)


def outputs_of(call, *inputs, **options) -> list:
    """Calls a part, which need not know the options that have their default, and returns a list of its outputs."""
    outputs = call(
        *inputs, **{name: value for name, value in options.items() if value is not None and value is not False}
    )
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def unpacked(outputs):
    """A tuple of outputs, or the only one."""
    return tuple(outputs) if len(outputs) > 1 else outputs[0]


def _norm_problems(norm):
    if norm is not None and not isinstance(norm, keras.Layer):
        yield f"`norm` must be a Keras layer. Received: norm={norm!r}"


def _layer_problems(layer, arguments):
    if layer is not None and not isinstance(layer, keras.Layer):
        yield f"`layer` must be a Keras layer. Received: layer={layer!r}"
    if layer is not None and arguments:
        yield f"Arguments of a new layer must not be given beside `layer`. Received: {', '.join(arguments)}"


def _is_plain_call(arguments, d_model, dtype):
    """Whether a call has only symbolic sequences `(batch, length, d_model)` and padding masks of their shapes."""
    tensors: list[Any] = [x for x in arguments if x is not None and not (isinstance(x, int) and x == 0)]
    if not all(isinstance(x, keras.KerasTensor) for x in tensors):
        return False
    sequences = [x for x in tensors if x.dtype != "bool"]
    shapes = {sequence.shape[:2] for sequence in sequences}
    return (
        all(len(x.shape) == 3 and x.shape[-1] == d_model and x.dtype == dtype for x in sequences)
        and all(mask.shape in shapes for mask in tensors if mask.dtype == "bool")
        and len({batch_size for batch_size, _ in shapes}) == 1
    )
