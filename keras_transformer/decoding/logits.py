"""Changes of the logits in a search: the repetition penalty, and a `logits_processor`."""

from keras import ops

from keras_transformer.decoding.search import is_possible


def processed(strategy, logits, tokens, step):
    """Applies the repetition penalty and the `logits_processor` of a strategy.

    A token that the processor forbids, by a logit of at most `NEG_INF` / 2 such as -inf, keeps its logit before the
    processor. So no row is without a distribution, and a token that is forced has a finite score.

    Args:
        strategy: a `GreedySearch`, `BeamSearch` or `Sampling`.
        logits: float32 `(rows, vocab_size)`.
        tokens: int32 `(rows, max_length)`, the `step` tokens generated so far, then padding.
        step: int32 scalar.

    Returns:
        The logits, and boolean `(rows, vocab_size)`, `False` at forbidden tokens, or `None` without a processor.

    Raises:
        ValueError: if the processor returns another shape.
    """
    if strategy.repetition_penalty != 1.0:
        logits = with_repetition_penalty(logits, tokens, step, strategy.repetition_penalty)
    if strategy.logits_processor is None:
        return logits, None
    changed = strategy.logits_processor(logits, tokens, step)
    shape = tuple(getattr(changed, "shape", ()))
    if len(shape) != 2 or None not in (shape[1], logits.shape[1]) and shape[1] != logits.shape[1]:
        raise ValueError(
            "`logits_processor` must return logits of the shape that it receives, (rows, vocab_size="
            f"{logits.shape[1]}). Received: {f'shape={shape}' if shape else changed}"
        )
    is_allowed = is_possible(changed)
    return ops.where(is_allowed, ops.cast(changed, "float32"), logits), is_allowed


def with_repetition_penalty(logits, tokens, step, penalty: float):
    """Divides the logits of generated tokens by the penalty if they are positive, and multiplies negative ones.

    Args:
        logits: float32 `(rows, vocab_size)`.
        tokens: int32 `(rows, max_length)`, the `step` tokens generated so far, then padding, which does not count.
        step: int32 scalar.
        penalty: at 1, nothing changes.

    Returns:
        Float32 `(rows, vocab_size)`.

    Reference:
        Keskar et al. 2019, "CTRL", §4.1, which divides negative logits, too; transformers and CTranslate2 multiply
        them.
    """
    is_made = ops.arange(ops.shape(tokens)[1], dtype="int32") < step
    made = ops.broadcast_to(ops.cast(is_made, "float32"), ops.shape(tokens))
    # (rows * max_length, 2) -> (rows, vocab_size): 1 at generated tokens.
    is_generated = ops.scatter_update(ops.zeros_like(logits), places(tokens), ops.reshape(made, (-1,)))
    penalized = ops.where(logits > 0, logits / penalty, logits * penalty)
    return ops.where(is_generated > 0, penalized, logits)


def places(tokens):
    """The places of tokens `(rows, length)` in a matrix `(rows, vocab_size)`: int32 `(rows * length, 2)`."""
    rows = ops.expand_dims(ops.arange(ops.shape(tokens)[0], dtype="int32"), 1)
    rows = ops.broadcast_to(rows, ops.shape(tokens))
    return ops.stack([ops.reshape(rows, (-1,)), ops.reshape(tokens, (-1,))], axis=-1)
