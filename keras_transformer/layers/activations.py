"""Activations by name, as Keras has them, and exportable variants of those that ONNX cannot express."""

import math

import keras
from keras import ops


def get(identifier):
    """Returns an activation.

    Args:
        identifier: name of a Keras activation or of a registered function, `"gelu_tanh"`, a configuration, or a
            callable.

    Returns:
        A callable.

    Raises:
        ValueError: if the name is unknown.

    Example:

    >>> get("relu") is keras.activations.relu
    True
    """
    if identifier == "gelu_tanh":
        return gelu_tanh
    if isinstance(identifier, str) and ">" in identifier:
        return keras.saving.get_registered_object(identifier) or keras.activations.get(identifier)
    return keras.activations.get(identifier)


def serialize(activation):
    """The name or configuration of an activation, from which `get` returns it."""
    return "gelu_tanh" if activation is gelu_tanh else keras.activations.serialize(activation)


def exportable(activation):
    """Replaces activations that Keras computes on TensorFlow with erfc or expm1, which ONNX does not have."""
    # CELU and ELU are equal at Keras's default alpha of 1.
    replaced = ((keras.activations.gelu, _gelu), (keras.activations.celu, keras.activations.elu))
    if keras.backend.backend() != "tensorflow":
        return activation
    return next((ours for theirs, ours in replaced if activation is theirs), activation)


@keras.saving.register_keras_serializable(package="keras_transformer", name="gelu")
def _gelu(x):
    """Computes x Φ(x), where Φ is the distribution function of the normal distribution."""
    # In half precision, the sum would round Φ of a negative number to 0.
    doubled = 1 + ops.erf(ops.cast(x, "float32") / math.sqrt(2))
    return 0.5 * x * ops.cast(doubled, x.dtype)


@keras.saving.register_keras_serializable(package="keras_transformer", name="gelu_tanh")
def gelu_tanh(x):
    """Approximates GELU by x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.

    Args:
        x: float tensor of any shape.

    Returns:
        The shape of `x`.

    Example:

    >>> gelu_tanh(np.array([-1.0, 0.0, 1.0], "float32")).numpy().round(4)
    array([-0.1588,  0.    ,  0.8412], dtype=float32)

    Reference:
        Hendrycks & Gimpel 2016, "Gaussian Error Linear Units (GELUs)", §2.
    """
    x = ops.convert_to_tensor(x)
    # (1 + tanh(z)) / 2 = sigmoid(2 z), which does not round to 0 for a negative z in half precision.
    return x * ops.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
