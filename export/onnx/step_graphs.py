"""The graphs of the parts of a model, for other searches: the encoder, a step of the decoder, and the alignment.

Each function makes the `Signature` of a graph from an `Exported`.
"""

import keras
import tensorflow as tf
from keras import ops

from keras_transformer.cache import KeyValue
from keras_transformer.export.programs import Signature, specs_of
from keras_transformer.models.teacher_forcing import attention_scores, mean_attention


def encoder(exported):
    """Source -> the projected memory, and its mask."""
    model = exported.model

    def encode(source):
        memory, mask = model.encode(source)
        return *_stacked(model.project_memory(memory)), mask

    inputs = {"source": ("batch", "source_length")}
    return Signature(encode, specs_of(inputs, tf.int32), inputs, _memory_shapes(model))


def decoder(exported):
    """The newest token of each row, with the memory and the cache -> its logits, and the new cache."""
    model = exported.model

    def decode(tokens, memory_key, memory_value, memory_mask, cache_key, cache_value):
        logits, cache = model.decode(
            tokens[:, 0],
            _unstacked(memory_key, memory_value),
            memory_mask=memory_mask,
            cache=_unstacked(cache_key, cache_value),
            offset=ops.shape(cache_key)[3],
        )
        return ops.cast(logits, "float32"), *_stacked(cache)

    def cache_shapes(prefix, length):
        layers = model.config.depths[1]
        key, value = ((layers, "rows", heads, length, width) for heads, width in _cache_sizes(model))
        return {f"{prefix}_key": key, f"{prefix}_value": value}

    inputs = {"tokens": ("rows", 1), **_memory_shapes(model), **cache_shapes("cache", "time")}
    outputs = {"logits": ("rows", model.config.vocab_size), **cache_shapes("next_cache", "next_time")}
    dtypes = {"tokens": tf.int32, "memory_mask": tf.bool}
    return Signature(decode, specs_of(inputs, model.compute_dtype, **dtypes), inputs, outputs)


def alignment(exported):
    """Source and target -> the mean weights of cross-attention."""
    model = exported.model

    def align(source, target):
        return (mean_attention(attention_scores(model, source, target)),)

    inputs = {"source": ("batch", "source_length"), "target": ("batch", "target_length")}
    outputs = {"weights": ("batch", "target_length", "source_length")}
    return Signature(align, specs_of(inputs, tf.int32), inputs, outputs)


def _memory_shapes(model):
    layers = model.config.depths[1]
    key, value = ((layers, "batch", heads, "source_length", width) for heads, width in _cache_sizes(model))
    return {"memory_key": key, "memory_value": value, "memory_mask": ("batch", "source_length")}


def _cache_sizes(model):
    """Number of heads and width, of the keys and of the values."""
    first, *_ = model.decoder.empty_cache(1, 1)
    return [(part.shape[1], part.shape[3]) for part in first]


def _stacked(caches):
    """Stacks the layers' keys, and their values. The first axis is the layer."""
    return tuple(ops.stack(parts) for parts in zip(*caches, strict=True))


def _unstacked(key, value):
    return tuple(KeyValue(key[i], value[i]) for i in range(key.shape[0]))


def text_decoder(exported):
    """New tokens of each text with the cache of those before -> the logits after the last one, and the new cache.

    The cache has one key and one value per layer. Stacked, they would be copied twice in each call.
    """
    model = exported.model
    layers = model.empty_cache(1, 1)

    def decode(tokens, *cache):
        states, cache = model.hidden_states(tokens, keras.tree.pack_sequence_as(layers, cache), ops.shape(cache[0])[2])
        return ops.cast(model.logits(states[:, -1]), "float32"), *keras.tree.flatten(cache)

    def cache_shapes(prefix, time):
        return {
            f"{prefix}_{part}_{i}": ("rows", x.shape[1], time, x.shape[3])
            for i, layer in enumerate(layers)
            for part, x in layer._asdict().items()
        }

    inputs = {"tokens": ("rows", "length"), **cache_shapes("cache", "time")}
    outputs = {"logits": ("rows", model.vocab_size), **cache_shapes("next_cache", "next_time")}
    return Signature(decode, specs_of(inputs, model.compute_dtype, tokens=tf.int32), inputs, outputs)
