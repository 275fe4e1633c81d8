"""Base classes of encoder and decoder layers, which are made of exchangeable parts.

The layers run their residual connections by `call` instead of `__call__`, because `__call__` rejects keyword
arguments that mix tensors with flags. Dtype and masks, which `__call__` would handle, are already those of the layer.
"""

import functools
import inspect
from typing import Any

import keras

from keras_transformer import masks
from keras_transformer.checks import require, within
from keras_transformer.layers.adaptation import Composite
from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.checks import check_rank, check_width
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.parts import adopt, claim, copy_layer, serialized_part
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
