"""The training loss."""

import keras
from keras import ops


def token_cross_entropy(labels, logits, smoothing: float = 0.0):
    """Cross-entropy of each token against the smoothed label, in float32.

    With ε = `smoothing` and V classes, the target distribution is (1 - ε) on the label plus ε / V on every class.
    The loss is computed from the logits z without that distribution:
    (1 - ε) (logsumexp z - z_label) + ε (logsumexp z - mean z).

    Args:
        labels: int `(…,)`.
        logits: `(…, vocab_size)`, unnormalized.
        smoothing: ε, in [0, 1).

    Returns:
        Float32 `(…,)`, in nats.

    Reference:
        Vaswani et al. 2017, §5.4; Szegedy et al. 2016.
    """
    logits = ops.cast(logits, "float32")
    normalizer = ops.logsumexp(logits, axis=-1)
    chosen = ops.take_along_axis(logits, ops.cast(labels, "int32")[..., None], axis=-1)[..., 0]
    expected = chosen
    if smoothing:
        expected = (1.0 - smoothing) * chosen + smoothing * ops.mean(logits, axis=-1)
    return normalizer - expected


@keras.saving.register_keras_serializable(package="keras_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Sparse cross-entropy from logits with label smoothing.

    Sample weights of 0, or `pad_id`, exclude padding. The training pipeline of this package sets the weights of the
    tokens in a global batch to (number of positions) / (number of tokens that are not padding). With these weights and
    the default reduction, the loss is exactly the mean over tokens on any number of replicas.

    Args:
        smoothing: ε of the smoothing, in [0, 1).
        pad_id: label id to ignore. Default: `None`, only sample weights mark padding.
        reduction: as in Keras; `None` and `"none"` return the loss of each token. The default `"auto"` is
            `"sum_over_batch_size"` without `pad_id`, and `"mean_with_sample_weight"` with `pad_id`: the mean over
            tokens that are not padding.
        name: name of the loss.
        **kwargs: arguments of `keras.losses.Loss`.

    Call arguments:
        y_true: int `(batch, length)`.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: `(batch, length)`.

    Returns:
        Float32 scalar, in nats; `(batch, length)` with reduction `None`.

    Raises:
        ValueError: if `smoothing` is not in [0, 1).

    Example:

    >>> loss = LabelSmoothedCrossEntropy(smoothing=0.1, pad_id=0)
    >>> float(loss(np.array([[2, 0]]), np.zeros((1, 2, 4), "float32")))  # log 4
    1.3862943649291992

    Reference:
        Vaswani et al. 2017, §5.4.
    """

    def __init__(self, smoothing=0.1, pad_id=None, reduction="auto", name="label_smoothed_cross_entropy", **kwargs):
        if not 0 <= smoothing < 1:
            raise ValueError(f"`smoothing` must be in [0, 1). Received: smoothing={smoothing}")
        if reduction == "auto":
            reduction = "sum_over_batch_size" if pad_id is None else "mean_with_sample_weight"
        super().__init__(name=name, reduction=reduction, **kwargs)
        self.smoothing = smoothing
        self.pad_id = pad_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        if self.pad_id is not None:
            real = ops.cast(ops.not_equal(y_true, self.pad_id), "float32")
            sample_weight = real if sample_weight is None else real * ops.cast(sample_weight, "float32")
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        return token_cross_entropy(y_true, y_pred, self.smoothing)

    def get_config(self):
        return {**super().get_config(), "smoothing": self.smoothing, "pad_id": self.pad_id}
