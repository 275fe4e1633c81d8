"""Metrics over tokens. Each is a weighted mean over everything seen since the last reset."""

import keras
from keras import ops

from keras_transformer.losses import token_cross_entropy


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(keras.metrics.MeanMetricWrapper):
    """Share of the tokens whose likeliest subword is the label.

    Call arguments:
        y_true: int `(batch, length)`.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: `(batch, length)`; padding has weight 0.

    Returns:
        Float32 scalar in [0, 1].

    Example:

    >>> metric = TokenAccuracy()
    >>> metric.update_state(np.array([[1, 0]]), np.eye(2, dtype="float32")[None], np.array([[1, 0]]))
    >>> float(metric.result())
    0.0
    """

    def __init__(self, name="token_accuracy", dtype=None):
        super().__init__(_is_correct, name=name, dtype=dtype)

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype}


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenLoss(keras.metrics.MeanMetricWrapper):
    """Mean of the (smoothed) cross-entropy over tokens.

    Keras's own `loss` is a mean of batch means and so depends on the batching; this is the mean over
    the corpus. Named `"loss"` it takes the place of Keras's in the logs.

    Args:
        smoothing: ε of label smoothing, in [0, 1).

    Call arguments:
        y_true: int `(batch, length)`.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: `(batch, length)`; padding has weight 0.

    Returns:
        Float32 scalar, in nats.

    Example:

    >>> metric = TokenLoss()
    >>> metric.update_state(np.array([[1]]), np.zeros((1, 1, 4), "float32"))
    >>> round(float(metric.result()), 4)
    1.3863
    """

    def __init__(self, smoothing=0.0, name="token_loss", dtype=None):
        super().__init__(token_cross_entropy, name=name, dtype=dtype, smoothing=smoothing)
        self.smoothing = smoothing

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "smoothing": self.smoothing}


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(TokenLoss):
    """exp(mean cross-entropy), without smoothing.

    Call arguments:
        y_true: int `(batch, length)`.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: `(batch, length)`; padding has weight 0.

    Returns:
        Float32 scalar, at least 1.

    Example:

    >>> metric = Perplexity()
    >>> metric.update_state(np.array([[1]]), np.zeros((1, 1, 4), "float32"))
    >>> round(float(metric.result()), 4)
    4.0
    """

    def __init__(self, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def result(self):
        return ops.exp(super().result())

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype}


def _is_correct(labels, logits):
    return ops.cast(ops.equal(ops.argmax(logits, axis=-1), ops.cast(labels, "int32")), "float32")
