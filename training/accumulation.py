"""Large batches in little memory: the parts of a batch one after another, and one update."""

import functools

import keras
import tensorflow as tf


def accumulate(model: keras.Model, parts: int) -> None:
    """Has each training step of `fit` go through its batch in parts.

    The gradient is that of the whole batch: the parts are of one size, so the mean of their means, each
    over all slots with the batch's sample weights, is the batch's. Keras's own accumulation is in the
    optimizer, where a part whose gradient overflows shifts the groups, and a checkpoint holds half sums.

    Args:
        model: a compiled model, whose optimizer steps as often as before.
        parts: how many; each device's rows of every batch must be a multiple.
    """
    if parts > 1:
        model.train_step = functools.partial(_train_step, model, parts)


def _train_step(model, parts, data):
    split = tf.nest.map_structure(
        lambda x: tf.reshape(x, tf.concat([[parts, tf.shape(x)[0] // parts], tf.shape(x)[1:]], 0)), data
    )
    variables = model.trainable_variables

    def add_part(i, *sums):
        gradients = _gradients(model, variables, *tf.nest.map_structure(lambda x: x[i], split))
        return i + 1, *(s + tf.cast(g, s.dtype) / parts for s, g in zip(sums, gradients, strict=True))

    start = (tf.constant(0), *(tf.zeros(v.shape, v.dtype) for v in variables))
    _, *gradients = tf.while_loop(lambda i, *_: i < parts, add_part, start, parallel_iterations=1)
    model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return model.get_metrics_result()


def _gradients(model, variables, inputs, labels, weights):
    """Of one part, as dense tensors; the metrics take note of it."""
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = model.compute_loss(inputs, labels, logits, weights, training=True)
        loss = model.optimizer.scale_loss(loss)
    model.compute_metrics(inputs, labels, logits, sample_weight=weights)
    return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
