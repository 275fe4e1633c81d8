"""What a `Transformer` says of given targets: one pass over each, every token after the true ones before it."""

from keras import ops

from keras_transformer import masks
from keras_transformer.losses import token_cross_entropy


def token_log_probs(transformer, source, target):
    """`Transformer.token_log_probs` of tensors.

    Args:
        transformer: the model.
        source: int tensor `(batch, source_length)`.
        target: int tensor `(batch, target_length)`.

    Returns:
        Float32 tensor `(batch, target_length)`.
    """
    logits, _ = _teacher_forced(transformer, source, target)
    is_real = masks.padding_mask(target, transformer.config.pad_id)
    return ops.where(is_real, -token_cross_entropy(target, logits), 0.0)


def attention_scores(transformer, source, target):
    """`Transformer.attention_scores` of tensors.

    Args:
        transformer: the model.
        source: int tensor `(batch, source_length)`.
        target: int tensor `(batch, target_length)`.

    Returns:
        One float32 tensor `(batch, num_heads, target_length, source_length)` a layer.
    """
    _, scores = _teacher_forced(transformer, source, target)
    is_real = masks.padding_mask(target, transformer.config.pad_id)[:, None, :, None]
    return tuple(ops.where(is_real, weights, 0.0) for weights in scores)


def _teacher_forced(transformer, source, target):
    config = transformer.config
    mask = masks.padding_mask(source, config.pad_id)
    shifted = ops.concatenate([ops.full_like(target[:, :1], config.bos_id), target[:, :-1]], axis=1)
    memory = transformer.encode(source, mask)
    return transformer.decode(shifted, memory, memory_mask=mask, return_attention_scores=True)
