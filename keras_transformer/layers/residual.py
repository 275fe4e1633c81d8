"""Residual connection with dropout and layer normalization around a sub-layer."""

import inspect

import keras
from keras import ops

from keras_transformer.checks import require, within
from keras_transformer.layers.adaptation import Composite
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable(package="keras_transformer")
class ResidualConnection(Composite):
    """LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x))) with `norm_first`.

    The implicit mask of x is passed on unchanged. If the sub-layer returns a tuple, its first element is added to x and
    the other elements are returned unchanged.

    Args:
        sublayer: a layer whose first output has the shape of its first input. A layer that is not built is built
            with this shape for all its inputs, so build a layer with a memory of another width first.
        dropout: dropout rate on the output of the sub-layer.
        norm_first: normalize the input of the sub-layer instead of the sum.
        epsilon: added to the variance in layer normalization.
        norm: a normalization layer, instead of layer normalization with `epsilon`.
        seed: seed of the dropout. Default: drawn from Python's `random` module.

    Call arguments:
        inputs: `(…, d_model)`.
        *args, **kwargs: further arguments of the sub-layer.

    Returns:
        `(…, d_model)`, or a tuple with this tensor first.

    Raises:
        ValueError: if the rate is not in [0, 1]. In a call: if the sub-layer changes the width.

    Example:

    >>> block = ResidualConnection(keras.layers.Dense(4), dropout=0.1)
    >>> block(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, §3.1 and §5.4.
    """

    def __init__(self, sublayer, dropout=0.0, norm_first=False, epsilon=1e-5, norm=None, seed=None, **kwargs):
        super().__init__(**kwargs)
        require(within("[0, 1]", dropout=dropout))
        self.supports_masking = True
        self.sublayer = sublayer
        self._extra_inputs = _required(sublayer.call)
        self.dropout = dropout
        self.norm_first = norm_first
        self.epsilon = epsilon
        self.seed = seed
        self._is_norm_given = norm is not None
        self.norm = norm or LayerNormalization(epsilon=epsilon, dtype=self.dtype_policy, name="norm")
        self.output_dropout = Dropout(dropout, seed=seed, dtype=self.dtype_policy, name="dropout")

    def build(self, inputs_shape, **sublayer_shapes):
        if not self.norm.built:
            self.norm.build(inputs_shape)
        if self.sublayer.built:
            return
        shapes = {**dict.fromkeys(_required(self.sublayer.build), inputs_shape), **sublayer_shapes}
        if type(self.sublayer).build is keras.Layer.build and not _is_built_inside(self.sublayer):
            self._build_by_a_call(inputs_shape, shapes)
        else:
            self.sublayer.build(inputs_shape, **shapes)

    def _build_by_a_call(self, inputs_shape, shapes):
        """Builds a sub-layer that has no `build` of its own: its sub-layers are built when it is called."""
        inputs = keras.KerasTensor(inputs_shape, self.compute_dtype)
        others = {
            name.removesuffix("_shape"): keras.KerasTensor(shape, self.compute_dtype) for name, shape in shapes.items()
        }
        self.sublayer(inputs, **{**dict.fromkeys(self._extra_inputs, inputs), **others})

    def call(self, inputs, *args, **kwargs):
        normed = self.norm(inputs) if self.norm_first else inputs
        extra = dict.fromkeys(self._extra_inputs[len(args) :], normed)
        result = self._run_sublayer(normed, *args, **{**extra, **kwargs})
        output, *others = result if isinstance(result, tuple) else (result,)
        if output.shape[-1] != inputs.shape[-1]:
            raise ValueError(
                "`sublayer` must not change the width of its input. "
                f"Received: input width={inputs.shape[-1]}, output width={output.shape[-1]}"
            )
        output = inputs + self.output_dropout(output)
        output = output if self.norm_first else self.norm(output)
        return (output, *others) if others else output

    def _run_sublayer(self, x, *args, **kwargs):
        if len(x.shape) == 2 and isinstance(self.sublayer, keras.Model):  # Models take inputs of one rank only.
            return ops.squeeze(self.sublayer(ops.expand_dims(x, 1), *args, **kwargs), 1)
        try:
            return self.sublayer(x, *args, **kwargs)
        except TypeError as error:
            parameters = inspect.signature(self.sublayer.call).parameters
            takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            if lacking := [name for name in kwargs if name not in parameters and not takes_all]:
                raise ValueError(
                    f"`call` of {self.sublayer.name}, of type {type(self.sublayer).__name__}, must take "
                    f"{', '.join(lacking)}, which its block gives to it. Received: {', '.join(parameters)}"
                ) from error
            raise

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        config = super().get_config()
        return config if self._is_norm_given else {**config, "norm": None}

    # The number of outputs depends on the sub-layer, so Keras infers symbolic outputs by tracing `call`.
    compute_output_spec = keras.Operation.compute_output_spec


def _required(method):
    """Names of the further inputs that a method requires, such as `value` of an attention layer of Keras.

    In a residual connection they equal the first one.
    """
    _, *others = inspect.signature(method).parameters.values()
    required = (other for other in others if other.kind is other.POSITIONAL_OR_KEYWORD and other.default is other.empty)
    # Keras fills the others.
    return [other.name for other in required if other.name != "training" and not other.name.endswith("mask")]


def _is_built_inside(layer):
    return all(part.built for part in layer._flatten_layers(include_self=False))
