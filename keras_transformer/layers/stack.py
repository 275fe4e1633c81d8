"""Base class of stacks of encoder or decoder layers."""

import keras
from keras import ops

from keras_transformer.cache import length_after
from keras_transformer.checks import at_least, require
from keras_transformer.layers.block import LayerOfParts, TransformerBlock, decoding_method, outputs_of, unpacked
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.parts import adopt, copied_arguments, copy_layer, serialized_part
from keras_transformer.layers.positional_encoding import consecutive_positions


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


def _layer_problems(layer, arguments):
    if layer is not None and not isinstance(layer, keras.Layer):
        yield f"`layer` must be a Keras layer. Received: layer={layer!r}"
    if layer is not None and arguments:
        yield f"Arguments of a new layer must not be given beside `layer`. Received: {', '.join(arguments)}"
