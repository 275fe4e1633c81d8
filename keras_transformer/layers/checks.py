"""Checks of the inputs of layers, by their static shapes."""

from keras_transformer.cache import KeyValue


def check_rank(name, shape, one_position=False):
    """Checks that an input has shape `(batch, length, width)`, or `(batch, width)` if `one_position`."""
    if len(shape) != 3 and not (one_position and len(shape) == 2):
        also = " or (batch, width)" if one_position else ""
        raise ValueError(f"`{name}` must have shape (batch, length, width){also}. Received: shape={tuple(shape)}")


def check_width(name, shape, d_model):
    """Checks that the last axis of an input has width `d_model`."""
    if shape[-1] != d_model:
        raise ValueError(
            f"The last axis of `{name}` must have width `d_model`={d_model}. "
            f"Received: width={shape[-1]}, shape={tuple(shape)}"
        )


def check_attention_inputs(query, value, key, cache, is_self_attention=False):
    """Checks which sequences an attention gets, and their ranks. `is_self_attention` allows no `value` and `key`."""
    given = {name: x for name, x in (("value", value), ("key", key)) if x is not None}
    if is_self_attention and given:
        raise ValueError(
            "An attention with `positions` computes self-attention and must not get another `value` or `key` than the "
            f"query. Received: {', '.join(given)}"
        )
    is_projected = isinstance(value, KeyValue)
    if is_projected and key is not None:
        raise ValueError(f"`key` must not be given beside a projected `value`. Received: key.shape={tuple(key.shape)}")
    check_rank("query", query.shape, one_position=is_projected or cache is not None)
    for name, x in given.items():
        if not isinstance(x, KeyValue):
            check_rank(name, x.shape, one_position=cache is not None)


def check_no_masks(cache, **given):
    """Refuses padding masks of a self-attention with a cache, which would cover the new positions only."""
    given = [name for name, mask in given.items() if mask is not None]
    if cache is not None and given:
        raise ValueError(f"With a cache, a self-attention takes `attention_mask` only. Received: {', '.join(given)}")
