"""Token metrics. Each is a mean over all tokens that are not padding, since the last `reset_state`.

A token counts if its sample weight is positive and its label is not `pad_id`. Keras passes sample weights to
`compile(weighted_metrics=…)`. Metrics in `compile(metrics=…)` receive no weights and need `pad_id`. Labels and weights
may have the shapes that `LabelSmoothedCrossEntropy` accepts. A label that counts and is outside of the vocabulary makes
the result NaN.
"""

import functools
import math

import keras
from keras import ops

from keras_transformer import masks
from keras_transformer.label_shapes import is_in_vocabulary, labels_and_weights
from keras_transformer.losses import token_cross_entropy, with_label_smoothing


class _TokenMean(keras.metrics.Mean):
    """Mean over tokens with equal weight, except padding.

    `keras.metrics.Mean` would average each row first, which gives tokens of short batches more weight. The values of
    positive sample weights are ignored: in training they are scaled by the share of padding in a batch.
    """

    def __init__(self, token_value, pad_id, **kwargs):
        super().__init__(**kwargs)
        self._token_value = token_value
        self.pad_id = pad_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, weights = labels_and_weights(y_true, y_pred, sample_weight, self.pad_id)
        # As Keras casts the labels of a loss: compilers then share the terms of the loss and the metrics.
        labels = ops.cast(labels, "float32")
        values = ops.where(is_in_vocabulary(labels, y_pred), self._token_value(labels, y_pred), math.nan)
        is_counted = ops.ones_like(values, "bool") if weights is None else ops.greater(weights, 0)
        mask = masks.resolve(None, y_pred)
        if mask is not None:
            is_counted = ops.logical_and(is_counted, mask)
        weights = ops.cast(is_counted, values.dtype)
        super().update_state(ops.reshape(values, (-1,)), ops.reshape(weights, (-1,)))

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "pad_id": self.pad_id}


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(_TokenMean):
    """Fraction of the tokens whose label has the highest logit. A tie counts as correct.

    Args:
        name: name of the metric.
        dtype: dtype of the result.
        pad_id: label id to ignore. Default: `None`, only sample weights mark padding.

    Call arguments:
        y_true: int `(batch, length)` or `(batch, length, 1)`.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: `(batch, length)`, 0 at padding and positive elsewhere; or `(batch,)` or `(batch, 1)`, positive
            for the sentences that count.

    Returns:
        Float32 scalar in [0, 1].

    Example:

    >>> metric = TokenAccuracy(pad_id=0)
    >>> metric.update_state(np.array([[1, 0]]), np.eye(2, dtype="float32")[None])
    >>> float(metric.result())
    0.0
    """

    def __init__(self, name="token_accuracy", dtype=None, pad_id=None):
        super().__init__(_is_correct, pad_id, name=name, dtype=dtype)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenLoss(_TokenMean):
    """Mean of the (smoothed) cross-entropy over tokens.

    The `loss` that Keras logs is a mean of batch means, so it depends on the batch size. This metric is the mean over
    all tokens. With `name="loss"` it replaces the Keras value in the logs.

    Args:
        label_smoothing: ε of label smoothing, in [0, 1).
        name: name of the metric.
        dtype: dtype of the result.
        pad_id: label id to ignore. Default: `None`, only sample weights mark padding.
        loss: another loss, as in `keras.Model.compile`, with one value per token: a `keras.losses.Loss`, a function of
            labels and logits, or a name. Its reduction is not used. Default: the cross-entropy.

    Call arguments:
        y_true: int `(batch, length)` or `(batch, length, 1)`.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: `(batch, length)`, 0 at padding and positive elsewhere; or `(batch,)` or `(batch, 1)`, positive
            for the sentences that count.

    Returns:
        Float32 scalar, in nats.

    Example:

    >>> metric = TokenLoss()
    >>> metric.update_state(np.array([[1]]), np.zeros((1, 1, 4), "float32"))
    >>> round(float(metric.result()), 4)
    1.3863
    """

    def __init__(self, label_smoothing=0.0, name="token_loss", dtype=None, pad_id=None, loss=None):
        cross_entropy = functools.partial(token_cross_entropy, label_smoothing=label_smoothing)
        super().__init__(cross_entropy if loss is None else _values_of(loss), pad_id, name=name, dtype=dtype)
        self.label_smoothing = label_smoothing
        self.loss = loss

    def get_config(self):
        config = {**super().get_config(), "label_smoothing": self.label_smoothing}
        return config if self.loss is None else {**config, "loss": keras.saving.serialize_keras_object(self.loss)}

    @classmethod
    def from_config(cls, config):
        loss = config.get("loss")
        own = {} if loss is None else {"loss": keras.saving.deserialize_keras_object(loss)}
        return cls(**{**with_label_smoothing(config), **own})


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(_TokenMean):
    """exp(mean cross-entropy), without label smoothing.

    Args:
        name: name of the metric.
        dtype: dtype of the result.
        pad_id: label id to ignore. Default: `None`, only sample weights mark padding.

    Call arguments:
        y_true: int `(batch, length)` or `(batch, length, 1)`.
        y_pred: logits `(batch, length, vocab_size)`.
        sample_weight: `(batch, length)`, 0 at padding and positive elsewhere; or `(batch,)` or `(batch, 1)`, positive
            for the sentences that count.

    Returns:
        Float32 scalar, at least 1.

    Example:

    >>> metric = Perplexity()
    >>> metric.update_state(np.array([[1]]), np.zeros((1, 1, 4), "float32"))
    >>> round(float(metric.result()), 4)
    4.0
    """

    def __init__(self, name="perplexity", dtype=None, pad_id=None):
        super().__init__(_negative_log_likelihood, pad_id, name=name, dtype=dtype)

    def result(self):
        return ops.exp(super().result())


def _values_of(loss):
    """The function that computes the loss of each token from labels and logits."""
    loss = keras.losses.get(loss)
    function = getattr(loss, "call", loss)
    # A Keras loss gets its arguments in float32, too.
    return lambda labels, logits: function(labels, ops.cast(logits, "float32"))


def _is_correct(labels, logits):
    # Not `argmax`, which would need another pass over the logits: the loss computes the same maximum.
    logits = ops.cast(logits, "float32")
    # On TensorFlow, the maximum of a batch without rows needs an initial value.
    largest = ops.max(logits, axis=-1, initial=-math.inf)
    return ops.cast(ops.greater_equal(_label_logits(labels, logits), largest), "float32")


def _negative_log_likelihood(labels, logits):
    logits = ops.cast(logits, "float32")
    return ops.logsumexp(logits, axis=-1) - _label_logits(labels, logits)


def _label_logits(labels, logits):
    # A label outside of the vocabulary would raise an error on some backends.
    labels = ops.clip(ops.cast(labels, "int32"), 0, ops.shape(logits)[-1] - 1)
    return ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1)[..., 0]
