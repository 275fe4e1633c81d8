"""Checks of model inputs: token ids and decoding strategies."""

import reprlib

import numpy as np

from keras_transformer.checks import require, same_number
from keras_transformer.counting import counted
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling


def checked_strategy(strategy):
    """Returns the strategy, or raises an error if it has another type."""
    if not isinstance(strategy, (BeamSearch, GreedySearch, Sampling)):
        raise ValueError(
            "`strategy` must be a BeamSearch, GreedySearch or Sampling of keras_transformer.decoding, such as "
            f"BeamSearch(beam_size=4). Received: strategy={strategy!r}"
        )
    return strategy


def checked_ids(name, ids, vocab_size: int, longest: int | None) -> np.ndarray:
    """Converts token ids to an int32 array `(batch, length)`.

    Raises an error unless they are an int matrix of ids below `vocab_size`, with at most `longest` columns.
    """
    try:
        ids = np.asarray(ids)
    except ValueError as error:
        raise ValueError(
            f"`{name}` must have rows of equal length, padded with `pad_id`. Received: {name}={reprlib.repr(ids)}"
        ) from error
    if ids.ndim != 2 or not (np.issubdtype(ids.dtype, np.integer) or ids.size == 0):
        raise ValueError(
            f"`{name}` must be int ids of shape (batch, {name}_length). Received: shape={ids.shape}, dtype={ids.dtype}"
        )
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if outside.size:
        raise ValueError(f"`{name}` must contain ids in [0, {vocab_size}). Received: id={outside[0]}")
    if longest and ids.shape[1] > longest:
        raise ValueError(
            f"`{name}` must have at most `max_length`={longest} columns, the number of learned positions. "
            f"Received: {name}_length={ids.shape[1]}"
        )
    return ids.astype("int32")


def checked_pairs(source, target, config) -> tuple[np.ndarray, np.ndarray]:
    """Checks source and target ids, one row of each per pair. Returns int32 arrays."""
    source = checked_ids("source", source, config.source_vocabulary, config.max_length)
    target = checked_ids("target", target, config.vocab_size, config.max_length)
    require(same_number("rows", source=source, target=target))
    return source, target


def checked_prefix(prefix, batch_size: int, config) -> np.ndarray:
    """Checks target prefixes; see `checked_beginnings`."""
    prefix = checked_beginnings("prefix", prefix, config)
    if len(prefix) != batch_size:
        raise ValueError(
            f"`prefix` must have one row per row of `source`. Received: {len(prefix)} and {counted(batch_size, 'row')}"
        )
    return prefix


def checked_beginnings(name, ids, config) -> np.ndarray:
    """Checks the ids with which hypotheses must begin: a prefix or a prompt.

    Returns an int32 array, trimmed to the longest row. Raises an error if ids contain BOS or EOS, have padding before
    other ids, or fill all learned positions, so that EOS does not fit.
    """
    ids = checked_ids(name, ids, config.vocab_size, None)
    is_real = ids != config.pad_id
    is_broken = (is_real[:, 1:] & ~is_real[:, :-1]).any(axis=1)
    if is_broken.any():
        row = is_broken.argmax()
        raise ValueError(
            f"`{name}` must have padding only at the end of each row. "
            f"Received: {name}[{row}]={reprlib.repr(ids[row].tolist())}"
        )
    for special in ("bos_id", "eos_id"):
        if (ids == getattr(config, special)).any():
            raise ValueError(f"`{name}` must not contain `{special}`. Received: {special}={getattr(config, special)}")
    longest = int(is_real.sum(axis=1).max(initial=0))
    if config.max_length and longest >= config.max_length:
        raise ValueError(
            f"`{name}` must be shorter than `max_length`={config.max_length}, the number of learned positions. "
            f"Received: {name}_length={longest}"
        )
    return ids[:, :longest]
