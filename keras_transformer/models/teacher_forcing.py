"""Functions of a model with teacher forcing: one pass over given targets instead of a search."""

from keras import ops

from keras_transformer import masks
from keras_transformer.decoding.search import NEG_INF
from keras_transformer.decoding.vocabulary_subset import VocabularySubset
from keras_transformer.losses import token_cross_entropy


def token_log_probs(transformer, source, target, candidates=None):
    """Computes `Transformer.token_log_probs` on tensors.

    Args:
        transformer: a `Transformer`.
        source: int tensor `(batch, source_length)`.
        target: int tensor `(batch, target_length)`.
        candidates: int tensor `(candidates,)`, or `None`.

    Returns:
        Float32 tensor `(batch, target_length)`.
    """
    logits, _ = _teacher_forced(transformer, source, target, transformer.logits.output_weights(candidates))
    if candidates is None:
        return _log_probs(target, logits, transformer.config)
    subset = VocabularySubset(candidates)
    is_candidate = ops.any(ops.expand_dims(target, -1) == candidates, axis=-1)
    log_probs = _log_probs(subset.to_subset_ids(target), subset.masked(logits), transformer.config)
    return ops.where(is_candidate, log_probs, NEG_INF)


def text_log_probs(language_model, tokens):
    """Computes `LanguageModel.token_log_probs` on a tensor.

    Args:
        language_model: a `LanguageModel`.
        tokens: int tensor `(batch, length)`.

    Returns:
        Float32 tensor `(batch, length)`.
    """
    config = language_model.config
    return _log_probs(tokens, language_model.decode(_shifted(tokens, config)), config)


def attention_scores(transformer, source, target):
    """Computes `Transformer.attention_scores` on tensors.

    Args:
        transformer: a `Transformer`.
        source: int tensor `(batch, source_length)`.
        target: int tensor `(batch, target_length)`.

    Returns:
        One float32 tensor `(batch, num_heads, target_length, source_length)` per layer.
    """
    _, scores = _teacher_forced(transformer, source, target)
    is_real = ops.expand_dims(masks.padding_mask(target, transformer.config.pad_id), (1, 3))
    return tuple(ops.where(is_real, weights, 0.0) for weights in scores)


def mean_attention(transformer, source, target):
    """Computes the mean of `Transformer.attention_scores` over layers and heads on tensors.

    Args:
        transformer: a `Transformer`.
        source: int tensor `(batch, source_length)`.
        target: int tensor `(batch, target_length)`.

    Returns:
        Float32 tensor `(batch, target_length, source_length)`.
    """
    scores = attention_scores(transformer, source, target)
    return sum(ops.mean(ops.cast(weights, "float32"), axis=1) for weights in scores) / len(scores)


def _teacher_forced(transformer, source, target, output_weights=None):
    config = transformer.config
    mask = masks.padding_mask(source, config.pad_id)
    memory = transformer.encode(source, mask)
    return transformer.decode(
        _shifted(target, config),
        memory,
        memory_mask=mask,
        return_attention_scores=True,
        output_weights=output_weights,
    )


def _shifted(target, config):
    return ops.concatenate([ops.full_like(target[:, :1], config.bos_id), target[:, :-1]], axis=1)


def _log_probs(target, logits, config):
    return ops.where(masks.padding_mask(target, config.pad_id), -token_cross_entropy(target, logits), 0.0)
