"""The position-wise feed-forward layer."""

import keras

from keras_transformer.checks import at_least, require, within
from keras_transformer.layers import activations
from keras_transformer.layers.projections import Projections


@keras.saving.register_keras_serializable(package="keras_transformer")
class FeedForward(Projections):
    """activation(x W_1 + b_1) W_2 + b_2, applied to each position. The implicit mask is passed on unchanged.

    With `gated`, (activation(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2: the gated unit is called SwiGLU if the activation
    is `"silu"`, GEGLU if it is `"gelu"` and ReGLU if it is `"relu"`. A third matrix W_g makes it half as large again;
    `d_ff` is often reduced to two thirds in exchange.

    Names here -> paper: `inner` -> W_1, `outer` -> W_2, `gate` -> W_g. Shazeer 2020 calls the gate W and `inner` V.

    Args:
        d_model: width of the output.
        d_ff: inner width.
        activation: name of a Keras activation or of a registered function, `"gelu_tanh"` (GELU by its approximation
            with tanh), or a callable.
        dropout: dropout rate on the inner activations; with `gated`, on the product.
        use_bias: whether to add the biases.
        gated: whether to multiply the inner activations by a gate.
        kernel_initializer: initializer of the kernels. Each kernel gets an initializer of its own, with a seed
            derived from that of the initializer or from `seed`.
        bias_initializer: initializer of the biases, likewise.
        kernel_regularizer: regularizer of the kernels.
        seed: int, for equal initial weights and dropout in each run. Default: seeds are drawn from Python's `random`
            module.

    Call arguments:
        inputs: `(…, any)`.

    Returns:
        `(…, d_model)`.

    Raises:
        ValueError: if a size is not positive, if the rate is not in [0, 1], or if the activation is unknown.

    Example:

    >>> FeedForward(d_model=4, d_ff=16)(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])
    >>> swiglu = FeedForward(d_model=4, d_ff=11, activation="silu", gated=True, use_bias=False)
    >>> swiglu(np.zeros((2, 5, 4), "float32")).shape
    TensorShape([2, 5, 4])

    Reference:
        Vaswani et al. 2017, §3.3, equation 2. With a gate: Shazeer 2020, "GLU Variants Improve Transformer", §2,
        equation 6.
    """

    def __init__(
        self,
        d_model,
        d_ff,
        activation="relu",
        dropout=0.0,
        use_bias=True,
        gated=False,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(kernel_initializer, bias_initializer, kernel_regularizer, seed, **kwargs)
        require(at_least(1, d_model=d_model, d_ff=d_ff), within("[0, 1]", dropout=dropout))
        self.supports_masking = True
        self.d_model = d_model
        self.d_ff = d_ff
        self.activation = activations.get(activation)
        self.dropout = dropout
        self.use_bias = use_bias
        self.gated = gated
        activation = activations.exportable(self.activation)
        self.inner = self._dense(d_ff, "inner", use_bias, None if gated else activation)
        self.inner_dropout = self._dropout(dropout)
        self.outer = self._dense(d_model, "outer", use_bias)
        self.gate = self._dense(d_ff, "gate", use_bias, activation) if gated else None

    def build(self, input_shape):
        self.inner.build(input_shape)
        self.outer.build((*input_shape[:-1], self.d_ff))
        if self.gate is not None:
            self.gate.build(input_shape)

    def call(self, inputs):
        hidden = self.inner(inputs)
        hidden = hidden if self.gate is None else self.gate(inputs) * hidden
        return self.outer(self.inner_dropout(hidden))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.d_model)

    def get_config(self):
        return {**super().get_config(), "activation": activations.serialize(self.activation)}
