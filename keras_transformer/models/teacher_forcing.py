"""Functions of a model with teacher forcing: one pass over given targets instead of a search."""

import inspect
from typing import Any

from keras import ops

from keras_transformer import masks
from keras_transformer.decoding.search import NEG_INF
from keras_transformer.decoding.vocabulary_subset import VocabularySubset
from keras_transformer.layers import DecoderLayer
from keras_transformer.losses import token_cross_entropy


def token_log_probs(model, source, target, candidates=None):
    """`Seq2Seq.token_log_probs` on tensors: float32 `(batch, target_length)`."""
    ids = model.special_ids
    if candidates is None:
        return _log_probs(target, _teacher_forced(model, source, target), ids)
    logits = _teacher_forced(model, source, target, **model.step_options(candidates))
    subset = VocabularySubset(candidates)
    is_candidate = ops.any(ops.expand_dims(target, -1) == candidates, axis=-1)
    log_probs = _log_probs(subset.to_subset_ids(target), subset.masked(logits), ids)
    return ops.where(is_candidate, log_probs, NEG_INF)


def text_log_probs(language_model, tokens):
    """`LanguageModel.token_log_probs` on a tensor: float32 `(batch, length)`."""
    ids = language_model.special_ids
    return _log_probs(tokens, language_model.decode(_shifted(tokens, ids)), ids)


def attention_scores(transformer, source, target):
    """`Transformer.attention_scores` on tensors: `(batch, num_heads, target_length, source_length)` per layer."""
    _, scores = _teacher_forced(transformer, source, target, return_attention_scores=True)
    is_real = ops.expand_dims(masks.padding_mask(target, transformer.special_ids.pad), (1, 3))
    return tuple(ops.where(is_real, weights, 0.0) for weights in scores)


def check_scores(decoder) -> None:
    """Raises `ValueError` if a cross-attention of a `Decoder` cannot return its weights."""
    for layer in decoder.layers:
        part = layer.cross_attention.sublayer if isinstance(layer, DecoderLayer) else layer
        if "return_attention_scores" not in inspect.signature(part.call).parameters:
            raise ValueError(
                "To return attention weights, the `call` of a cross-attention or decoder layer must take "
                f"`return_attention_scores`. Received: {part.name} of type {type(part).__name__} in {layer.name}"
            )


def mean_attention(scores, mean=ops.mean) -> Any:
    """The mean of `attention_scores` over heads and layers: `(batch, target_length, source_length)`.

    Args:
        scores: tensors, or NumPy arrays with `mean=np.mean`.
        mean: the mean of one layer over an axis.
    """
    return sum(mean(weights, axis=1) for weights in scores) / len(scores)


def _teacher_forced(model, source, target, **options):
    return model.decode(_shifted(target, model.special_ids), *model.encode(source), **options)


def _shifted(target, ids):
    return ops.concatenate([ops.full_like(target[:, :1], ids.bos), target[:, :-1]], axis=1)


def _log_probs(target, logits, ids):
    return ops.where(masks.padding_mask(target, ids.pad), -token_cross_entropy(target, logits), 0.0)
