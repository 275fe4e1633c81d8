"""Checks of model inputs: sources, token ids and decoding strategies."""

import reprlib

import keras
import numpy as np

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


def checked_prefix(prefix, batch_size: int, model) -> np.ndarray:
    """Checks target prefixes; see `checked_beginnings`."""
    prefix = checked_beginnings("prefix", prefix, model)
    if len(prefix) != batch_size:
        raise ValueError(
            f"`prefix` must have one row per row of `source`. Received: {len(prefix)} and {counted(batch_size, 'row')}"
        )
    return prefix


def checked_beginnings(name, ids, model) -> np.ndarray:
    """Checks the ids with which hypotheses must begin: a prefix or a prompt.

    Returns an int32 array, trimmed to the longest row. Raises an error if ids contain BOS or EOS, have padding before
    other ids, or fill all learned positions, so that EOS does not fit.
    """
    ids = checked_ids(name, ids, model.vocab_size, None)
    is_real = ids != model.special_ids.pad
    is_broken = (is_real[:, 1:] & ~is_real[:, :-1]).any(axis=1)
    if is_broken.any():
        row = is_broken.argmax()
        raise ValueError(
            f"`{name}` must have padding only at the end of each row. "
            f"Received: {name}[{row}]={reprlib.repr(ids[row].tolist())}"
        )
    for special in ("bos", "eos"):
        found = getattr(model.special_ids, special)
        if (ids[is_real] == found).any():
            raise ValueError(f"`{name}` must not contain `{special}_id`. Received: {special}_id={found}")
    longest = int(is_real.sum(axis=1).max(initial=0))
    if model.max_length and longest >= model.max_length:
        raise ValueError(
            f"`{name}` must be shorter than `max_length`={model.max_length}, the number of learned positions. "
            f"Received: {name}_length={longest}"
        )
    return ids[:, :longest]


def checked_source(source, spec, name: str = "source"):
    """Converts a source to arrays of the dtypes of a structure of tensors.

    Raises an error unless it has the structure, ranks and static sizes, and the same number of rows in each array.
    """
    try:
        if isinstance(spec, keras.KerasTensor):
            arrays = np.asarray(source, spec.dtype)  # Nested lists are one array.
        else:
            keras.tree.assert_same_structure(source, spec)
            arrays = keras.tree.map_structure(lambda x, expected: np.asarray(x, expected.dtype), source, spec)
    except (ValueError, TypeError) as error:
        expected = keras.tree.map_structure(_described, spec)
        raise ValueError(f"`{name}` must be {expected}. Received: {name}={reprlib.repr(source)}") from error
    found, expected = keras.tree.flatten(arrays), keras.tree.flatten(spec)
    for x, of in zip(found, expected, strict=True):
        fits = len(x.shape) == len(of.shape) and all(b in (None, a) for a, b in zip(x.shape, of.shape, strict=True))
        if not fits or len(x) != len(found[0]):
            shapes = ", ".join(str(array.shape) for array in found)
            specs = ", ".join(map(_described, expected))
            raise ValueError(f"`{name}` must be {specs}. Received: {shapes}")
    return arrays


def _described(spec):
    return f"{spec.dtype} of shape ({', '.join('any' if n is None else str(n) for n in spec.shape)})"
