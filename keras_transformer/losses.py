"""Training losses."""

import math

import keras
from keras import ops

from keras_transformer.checks import at_least, require, within
from keras_transformer.label_shapes import (
    aligned_labels,
    first_pass,
    has_two_passes,
    is_in_vocabulary,
    labels_and_weights,
)

__all__ = ["LabelSmoothedCrossEntropy", "RDropCrossEntropy", "token_cross_entropy"]


def token_cross_entropy(labels, logits, label_smoothing: float = 0.0):
    """Cross-entropy of each token against the smoothed label, in float32.

    With ε = `label_smoothing` and V classes, the target distribution q is (1 - ε) on the label plus ε / V on every
    class. The loss is computed from the logits z: logsumexp z - Σ q z. It is NaN for a label outside of the vocabulary,
    since compiled graphs cannot raise errors about values.

    Args:
        labels: int `(…,)` or `(…, 1)`.
        logits: `(…, vocab_size)`, unnormalized.
        label_smoothing: ε, in [0, 1).

    Returns:
        Float32 `(…,)`, in nats.

    Raises:
        ValueError: if there is not one label per vector of logits.

    Reference:
        Vaswani et al. 2017, §5.4; Szegedy et al. 2016.
    """
    labels = aligned_labels(labels, tuple(logits.shape))
    logits = ops.cast(logits, "float32")
    normalizer = ops.logsumexp(logits, axis=-1)
    # Not `take_along_axis`: its gradient is a scatter, and XLA then writes the gradient of the logits in float32.
    is_label = ops.equal(ops.arange(ops.shape(logits)[-1], dtype="int32"), ops.cast(labels, "int32")[..., None])
    if label_smoothing:
        share = label_smoothing / logits.shape[-1]
        weighted = ops.where(is_label, 1.0 - label_smoothing + share, share) * logits
    else:
        weighted = ops.where(is_label, logits, 0.0)  # No product: a logit may be infinite.
    return ops.where(is_in_vocabulary(labels, logits), normalizer - ops.sum(weighted, axis=-1), math.nan)


@keras.saving.register_keras_serializable(package="keras_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Sparse cross-entropy from logits with label smoothing.

    Sample weights of 0, or `pad_id`, exclude padding. The training pipeline of this package sets the weights of the
    tokens in a global batch to (number of positions) / (number of tokens that are not padding). With these weights and
    the default reduction, the loss is exactly the mean over tokens on any number of replicas.

    Weights of shape `(batch,)` or `(batch, 1)`, such as those that Keras makes of `class_weight`, weight sentences. A
    label outside of the vocabulary makes the loss NaN, unless its weight is 0 or it is `pad_id`: set `pad_id=-100` for
    labels in the convention of PyTorch.

    Args:
        label_smoothing: ε of label smoothing, in [0, 1).
        pad_id: label id to ignore. Default: `None`, only sample weights mark padding.
        reduction: as in Keras; `None` and `"none"` return the loss of each token. The default `"auto"` is
            `"sum_over_batch_size"` without `pad_id`, and `"mean_with_sample_weight"` with `pad_id`: the mean over
            tokens that are not padding.
        name: name of the loss.
        **kwargs: arguments of `keras.losses.Loss`.

    Call arguments:
        y_true: int `(batch, length)`; for logits `(batch, classes)`, `(batch,)`. A last axis of 1 is removed.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: one weight per token, `(batch, length)`, or one per sentence, `(batch,)` or `(batch, 1)`.

    Returns:
        Float32 scalar, in nats; `(batch, length)` with reduction `None`.

    Raises:
        ValueError: if `label_smoothing` is not in [0, 1). In a call: if the static shapes of labels, logits and
            weights do not fit.

    Example:

    >>> loss = LabelSmoothedCrossEntropy(label_smoothing=0.1, pad_id=0)
    >>> float(loss(np.array([[2, 0]]), np.zeros((1, 2, 4), "float32")))  # log 4
    1.3862943649291992

    Reference:
        Vaswani et al. 2017, §5.4.
    """

    def __init__(
        self, label_smoothing=0.1, pad_id=None, reduction="auto", name="label_smoothed_cross_entropy", **kwargs
    ):
        require(within("[0, 1)", label_smoothing=label_smoothing))
        if reduction == "auto":
            reduction = "sum_over_batch_size" if pad_id is None else "mean_with_sample_weight"
        # Keras casts the labels to this dtype. Half precision cannot represent all ids.
        super().__init__(name=name, reduction=reduction, **{"dtype": "float32", **kwargs})
        self.label_smoothing = label_smoothing
        self.pad_id = pad_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        labels, weights = labels_and_weights(y_true, self._first_pass(y_true, y_pred), sample_weight, self.pad_id)
        loss = super().__call__(labels, y_pred, weights)
        # Keras does not reduce a loss of shape (0,).
        return ops.sum(loss) if len(loss.shape) == 1 and self.reduction not in (None, "none") else loss

    def _first_pass(self, y_true, y_pred):
        return y_pred

    def call(self, y_true, y_pred):
        return token_cross_entropy(y_true, y_pred, self.label_smoothing)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing, "pad_id": self.pad_id}

    @classmethod
    def from_config(cls, config):
        return cls(**with_label_smoothing(config))


@keras.saving.register_keras_serializable(package="keras_transformer")
class RDropCrossEntropy(LabelSmoothedCrossEntropy):
    """R-Drop: the loss of two passes with different dropout, plus the difference of their predictions.

    With P₁ and P₂ the distributions that the two passes predict for a token, the loss of the token is
    (CE₁ + CE₂) / 2 + α/4 · (KL(P₁ ‖ P₂) + KL(P₂ ‖ P₁)), where CE is the smoothed cross-entropy. This is half of the sum
    in the paper, so that its size is that of `LabelSmoothedCrossEntropy`.

    `Transformer` and `LanguageModel` that are compiled with `r_drop=True` run both passes in training, on two copies of
    each row. A training step then takes more than twice the time. Their metrics are computed from the first pass.
    Validations run one pass and have no KL term.

    Args:
        alpha: α, not negative.
        label_smoothing: see `LabelSmoothedCrossEntropy`.
        pad_id: see `LabelSmoothedCrossEntropy`.
        reduction: see `LabelSmoothedCrossEntropy`.
        name: name of the loss.
        **kwargs: arguments of `keras.losses.Loss`.

    Call arguments:
        y_true: see `LabelSmoothedCrossEntropy`.
        y_pred: logits `(batch, 2, length, vocab_size)` of two passes, or `(batch, length, vocab_size)` of one.
        sample_weight: see `LabelSmoothedCrossEntropy`.

    Returns:
        Float32 scalar, in nats; `(batch, length)` with reduction `None`.

    Raises:
        ValueError: if `alpha` is negative; see also `LabelSmoothedCrossEntropy`.

    Example:

    >>> loss = RDropCrossEntropy(alpha=5.0, label_smoothing=0.1)
    >>> both = np.zeros((1, 2, 1, 4), "float32")
    >>> round(float(loss(np.array([[2]]), both)), 4)  # Equal passes: log 4.
    1.3863
    >>> both[:, 1, :, 2] = 1.0
    >>> round(float(loss(np.array([[2]]), both)), 4)
    1.3842

    Reference:
        Wu et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", §2.
    """

    def __init__(
        self, alpha=5.0, label_smoothing=0.1, pad_id=None, reduction="auto", name="r_drop_cross_entropy", **kwargs
    ):
        require(at_least(0, alpha=alpha))
        super().__init__(label_smoothing, pad_id, reduction, name=name, **kwargs)
        self.alpha = alpha

    def call(self, y_true, y_pred):
        if not has_two_passes(y_true, y_pred):
            return super().call(y_true, y_pred)
        cross_entropy = token_cross_entropy(y_true, y_pred[:, 0], self.label_smoothing)
        cross_entropy = cross_entropy + token_cross_entropy(y_true, y_pred[:, 1], self.label_smoothing)
        log_p = ops.log_softmax(ops.cast(y_pred, "float32"), axis=-1)
        p = ops.exp(log_p)
        # KL(P₁ ‖ P₂) + KL(P₂ ‖ P₁) = Σ (P₁ - P₂) (log P₁ - log P₂)
        divergence = ops.sum((p[:, 0] - p[:, 1]) * (log_p[:, 0] - log_p[:, 1]), axis=-1)
        return cross_entropy / 2 + self.alpha / 4 * divergence

    def _first_pass(self, y_true, y_pred):
        return first_pass(y_true, y_pred)

    def get_config(self):
        return {**super().get_config(), "alpha": self.alpha}


def with_label_smoothing(config: dict) -> dict:
    """The configuration of a loss or metric with the current names: version 0.1 wrote `smoothing`."""
    return {{"smoothing": "label_smoothing"}.get(name, name): value for name, value in config.items()}
