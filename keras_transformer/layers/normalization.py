"""Layer normalization that Keras can export from every backend."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` over the last axis.

    On PyTorch, Keras passes the width as it is traced. The ONNX exporter of PyTorch requires a number.

    Args:
        **kwargs: arguments of `keras.layers.LayerNormalization`, except `axis` and the deprecated `rms_scaling`.

    Call arguments:
        inputs: `(…, width)`.

    Returns:
        The shape of `inputs`.
    """

    def build(self, input_shape):
        super().build(input_shape)
        self._width = input_shape[-1]

    def call(self, inputs):
        if keras.backend.backend() != "torch":
            return super().call(inputs)
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        x, gamma, beta = (ops.cast(tensor, dtype) for tensor in (inputs, self.gamma, self.beta))
        return ops.cast(_torch_layer_norm(x, self._width, gamma, beta, self.epsilon), self.compute_dtype)


def _torch_layer_norm(x, width, gamma, beta, epsilon):
    from torch.nn.functional import layer_norm  # pyright: ignore[reportMissingImports]

    return layer_norm(x, (width,), gamma, beta, epsilon)
