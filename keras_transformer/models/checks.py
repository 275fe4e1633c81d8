"""Checks of what a model is given: ids, and the strategy of a search."""

import reprlib

import numpy as np

from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling


def checked_strategy(strategy):
    """A strategy of `keras_transformer.decoding`.

    Args:
        strategy: what a caller gave.

    Returns:
        The same.

    Raises:
        ValueError: if it is none, naming those that there are.
    """
    if not isinstance(strategy, (BeamSearch, GreedySearch, Sampling)):
        raise ValueError(
            "`strategy` must be an object of keras_transformer.decoding: a BeamSearch, a GreedySearch or a Sampling, "
            f"such as BeamSearch(beam_size=4). Received: strategy={strategy!r}"
        )
    return strategy


def checked_ids(name, ids, vocab_size: int, longest: int | None) -> np.ndarray:
    """A matrix of ids.

    Args:
        name: of the argument, for messages.
        ids: an array or nested lists.
        vocab_size: ids must be below it.
        longest: the model's learned positions, or `None` where any length will do.

    Returns:
        Int32 `(batch, length)`.

    Raises:
        ValueError: if it is none, holds other ids, or is too long.
    """
    try:
        ids = np.asarray(ids)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must have rows of one length, padded with `pad_id`. Received: {name}={reprlib.repr(ids)}"
        ) from error
    if ids.ndim != 2 or not (np.issubdtype(ids.dtype, np.integer) or ids.size == 0):
        raise ValueError(
            f"`{name}` must be int ids of shape (batch, {name}_length). Received: shape={ids.shape}, dtype={ids.dtype}"
        )
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        raise ValueError(f"`{name}` must hold ids in [0, {vocab_size}). Received: {outside[0]}")
    if longest and ids.shape[1] > longest:
        raise ValueError(
            f"`{name}` must be at most `max_length`={longest} long, the number of learned "
            f"positions. Received: {name}_length={ids.shape[1]}"
        )
    return ids.astype("int32")


def checked_pairs(source, target, config) -> tuple[np.ndarray, np.ndarray]:
    """Source and target ids, as many of the one as of the other.

    Args:
        source: ids `(batch, source_length)`.
        target: ids `(batch, target_length)`.
        config: the model's `TransformerConfig`.

    Returns:
        Two int32 matrices.

    Raises:
        ValueError: if one is no matrix of ids, or their batch sizes differ.
    """
    source = checked_ids("source", source, config.source_vocabulary, config.max_length)
    target = checked_ids("target", target, config.vocab_size, config.max_length)
    if len(source) != len(target):
        raise ValueError(
            f"`source` and `target` must have as many rows. Received: {len(source)} and {len(target)} rows"
        )
    return source, target


def checked_prefix(prefix, batch_size: int, config) -> np.ndarray:
    """How the hypotheses of some sentences must begin.

    Args:
        prefix: ids `(batch, prefix_length)`.
        batch_size: of the source.
        config: the model's `TransformerConfig`.

    Returns:
        Int32 matrix, padded.

    Raises:
        ValueError: as of `checked_beginnings`, and if it has not a row a sentence.
    """
    prefix = checked_beginnings("prefix", prefix, config)
    if len(prefix) != batch_size:
        raise ValueError(f"`prefix` must have as many rows as `source`. Received: {len(prefix)} and {batch_size} rows")
    return prefix


def checked_beginnings(name, ids, config) -> np.ndarray:
    """How hypotheses must begin.

    Args:
        name: of the argument, for messages.
        ids: `(batch, length)`.
        config: the model's `TransformerConfig`.

    Returns:
        Int32 matrix, padded to the longest row.

    Raises:
        ValueError: if it is no matrix of ids, holds special ids or padding between others, or leaves no
            learned position for the end.
    """
    ids = checked_ids(name, ids, config.vocab_size, None)
    is_real = ids != config.pad_id
    is_broken = (is_real[:, 1:] & ~is_real[:, :-1]).any(axis=1)
    if is_broken.any():
        row = is_broken.argmax()
        raise ValueError(
            f"`{name}` must have its padding after each row's ids. "
            f"Received: {name}[{row}]={reprlib.repr(ids[row].tolist())}"
        )
    for special in ("bos_id", "eos_id"):
        if (ids == getattr(config, special)).any():
            raise ValueError(f"`{name}` must not hold `{special}`. Received: {getattr(config, special)}")
    longest = int(is_real.sum(axis=1).max(initial=0))
    if config.max_length and longest >= config.max_length:
        raise ValueError(
            f"`{name}` must be shorter than `max_length`={config.max_length}, the number of learned positions. "
            f"Received: {name}_length={longest}"
        )
    return ids[:, :longest]
