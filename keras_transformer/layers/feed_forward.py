"""The position-wise feed-forward layer."""

import math

import keras
from keras import ops

from keras_transformer.checks import at_least, require, within
from keras_transformer.layers.adaptation import Composite
from keras_transformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(Composite):
    """activation(x W_1 + b_1) W_2 + b_2, applied to each position. The implicit mask is passed on unchanged.

    Args:
        d_model: width of the output.
        d_ff: inner width.
        activation: name of a Keras activation, or a callable.
        dropout: dropout rate on the inner activations.
        use_bias: whether to add the biases b_1 and b_2.

    Call arguments:
        inputs: `(…, any)`.

    Returns:
        `(…, d_model)`.

    Raises:
        ValueError: if a size is not positive, or if the rate is not in [0, 1].

    Example:

    >>> FeedForward(d_model=4, d_ff=16)(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, §3.3, equation 2.
    """

    def __init__(self, d_model, d_ff, activation="relu", dropout=0.0, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        require(at_least(1, d_model=d_model, d_ff=d_ff), within("[0, 1]", dropout=dropout))
        self.supports_masking = True
        self.d_model = d_model
        self.d_ff = d_ff
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.use_bias = use_bias
        self.inner = keras.layers.Dense(
            d_ff, activation=_exportable(self.activation), use_bias=use_bias, dtype=self.dtype_policy, name="inner"
        )
        self.inner_dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.outer = keras.layers.Dense(d_model, use_bias=use_bias, dtype=self.dtype_policy, name="outer")

    def build(self, input_shape):
        self.inner.build(input_shape)
        self.outer.build((*input_shape[:-1], self.d_ff))

    def call(self, inputs):
        return self.outer(self.inner_dropout(self.inner(inputs)))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
        }


def _exportable(activation):
    """Replaces Keras's GELU on TensorFlow, which computes it with erfc: ONNX has erf only."""
    is_with_erfc = activation is keras.activations.gelu and keras.backend.backend() == "tensorflow"
    return _gelu if is_with_erfc else activation


@keras.saving.register_keras_serializable(package="keras_transformer", name="gelu")
def _gelu(x):
    """Computes x Φ(x), where Φ is the distribution function of the normal distribution."""
    # In half precision, the sum would round Φ of a negative number to 0.
    doubled = 1 + ops.erf(ops.cast(x, "float32") / math.sqrt(2))
    return 0.5 * x * ops.cast(doubled, x.dtype)
