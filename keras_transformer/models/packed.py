"""Packed rows of a model: what segments change in its layers. Without segments, nothing."""

from keras_transformer import masks
from keras_transformer.layers.positional_encoding import segment_positions


def packed_positions(segments):
    """The argument `positions` of a positional encoding."""
    return None if segments is None else segment_positions(segments)


def same_segment(query_segments, key_segments):
    """The argument `attention_mask` of an attention."""
    return None if query_segments is None else masks.segment_mask(query_segments, key_segments)
