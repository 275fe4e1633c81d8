"""How labels and sample weights fit logits: one rule for all losses and metrics.

There is one label per vector of logits, and one weight per label or one per row. Static shapes are checked: compiled
graphs cannot raise errors about others.
"""

from keras import ops

from keras_transformer import masks


def labels_and_weights(labels, logits, weights, pad_id):
    """Prepares the labels and the sample weights of a loss or a metric.

    Args:
        labels: `(…,)` or `(…, 1)`.
        logits: `(…, vocab_size)`.
        weights: see `token_weights`; or `None`.
        pad_id: label id to ignore, or `None`.

    Returns:
        Labels `(…,)`, and weights of this shape, or `None`. Labels that are ignored are 0, so that they need not be in
        the vocabulary.
    """
    labels = aligned_labels(labels, tuple(logits.shape))
    weights = None if weights is None else token_weights(weights, labels)
    if pad_id is not None:
        is_real = ops.cast(masks.padding_mask(labels, pad_id), "float32")
        weights = is_real if weights is None else is_real * weights
    if weights is not None:
        labels = ops.where(ops.equal(weights, 0), 0, labels)
    mask = masks.resolve(None, logits)
    return labels if mask is None else ops.where(mask, labels, 0), weights


def aligned_labels(labels, logits_shape):
    """Removes a last axis of 1 from the labels, and checks that there is one label per vector of logits."""
    shape = tuple(labels.shape)
    if fits(shape, logits_shape[:-1]):
        return labels
    if shape[-1:] == (1,) and fits(shape[:-1], logits_shape[:-1]):
        return labels[..., 0]
    raise ValueError(
        "The logits must have one axis more than the labels, and be equal in the others. "
        f"Received: labels.shape={shape}, logits.shape={logits_shape}"
    )


def token_weights(weights, labels):
    """Checks sample weights, and repeats those of rows for each label of the row.

    Args:
        weights: one per label, `(…,)` or `(…, 1)`; or one per row, `(batch,)` or `(batch, 1)`; or a scalar.
        labels: `(batch, …)`.
    """
    given = weights = ops.convert_to_tensor(weights, "float32")
    expected = tuple(labels.shape)
    if len(weights.shape) == len(expected) + 1 and weights.shape[-1] == 1:
        weights = weights[..., 0]
    shape = tuple(weights.shape)
    is_of_rows = all(size == 1 for size in shape[1:]) and len(shape) <= len(expected)
    if is_of_rows and fits(shape[:1], expected[: len(shape[:1])]):
        for _ in expected[len(shape) :]:
            weights = ops.expand_dims(weights, -1)
        return ops.broadcast_to(weights, ops.shape(labels))
    if fits(shape, expected):
        return weights
    raise ValueError(
        "The sample weights must have the shape of the labels, or (batch,): one weight per row. "
        f"Received: sample_weight.shape={tuple(given.shape)}, labels.shape={expected}"
    )


def has_two_passes(labels, logits) -> bool:
    """Whether logits are those of two passes, `(batch, 2, …, vocab_size)`, and not of one."""
    batch, *others = logits.shape
    shape, expected = tuple(labels.shape), (batch, *others[1:-1])
    is_two = len(others) > 1 and others[0] == 2
    return is_two and (fits(shape, expected) or shape[-1:] == (1,) and fits(shape[:-1], expected))


def first_pass(labels, logits):
    """The logits of the first of two passes; those of one pass as they are."""
    return logits[:, 0] if has_two_passes(labels, logits) else logits


def is_in_vocabulary(labels, logits):
    """Whether labels `(…,)` are ids of the vocabulary of the logits `(…, vocab_size)`."""
    return ops.logical_and(ops.greater_equal(labels, 0), ops.less(labels, ops.shape(logits)[-1]))


def fits(shape, expected) -> bool:
    """Whether two static shapes, with `None` for unknown sizes, may be equal."""
    return len(shape) == len(expected) and all(
        one == other or None in (one, other) for one, other in zip(shape, expected, strict=True)
    )
