"""Layouts of weights for `keras.distribution`, with which JAX trains a model on several devices."""

import keras

from keras_transformer.checks import require
from keras_transformer.config import TransformerConfig

__all__ = ["layout_map"]


def layout_map(
    config: TransformerConfig, device_mesh: keras.distribution.DeviceMesh, model_dim: str = "model"
) -> keras.distribution.LayoutMap:
    """Makes the layouts of a model's weights for `keras.distribution.ModelParallel`.

    The weights of each device are a part of the matrices, so that a model can be larger than the memory of a device:

    | weights | split by |
    |---|---|
    | projections of queries, keys and values | heads; one that has too few heads of keys is not split |
    | output projection of attention | heads |
    | feed-forward layers | d_ff |
    | embeddings, output matrix | rows, which are tokens; by d_model if the rows cannot be divided |
    | others, such as norms | not split |

    The layouts fit the names of the weights of `Transformer`, `LanguageModel`, `MaskedLanguageModel` and
    `SentenceClassifier`. The state of an optimizer has the layout of its weight. A part of your own is not split.

    Args:
        config: a `TransformerConfig`.
        device_mesh: a `keras.distribution.DeviceMesh`.
        model_dim: name of the axis of the mesh over which weights are split.

    Returns:
        A `keras.distribution.LayoutMap`.

    Raises:
        ValueError: if the mesh has no axis of that name, or `num_heads` or `d_ff` is not a multiple of its size.

    Example:

    >>> devices = [f"cpu:{i}" for i in range(8)]
    >>> mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"], devices)
    >>> config = TransformerConfig.preset("tiny", vocab_size=8000)
    >>> layout_map(config, mesh)["transformer/encoder/layer_0/feed_forward/inner/kernel"].axes
    (None, 'model')

    Reference:
        Shoeybi et al. 2019, "Megatron-LM", §3.
    """
    axes = dict(zip(device_mesh.axis_names, device_mesh.shape, strict=True))
    if model_dim not in axes:
        raise ValueError(f"`model_dim` must be an axis of the mesh, {list(axes)}. Received: model_dim={model_dim!r}")
    size = axes[model_dim]
    require(
        f"`{name}` must be a multiple of the size of the axis {model_dim}, {size}. Received: {name}={value}"
        for name, value in (("num_heads", config.num_heads), ("d_ff", config.d_ff))
        if value % size
    )
    split_names = "query|key|value" if config.kv_heads % size == 0 else "query"
    layouts = {
        f"({split_names}|inner|gate)/kernel": (None, model_dim),
        f"({split_names}|inner|gate)/bias": (model_dim,),
        "(output|outer)/kernel": (model_dim, None),
        "source_embedding/embeddings": _table(config.source_vocabulary, config.d_model, size, model_dim),
        "(target_|output_)?embedding/embeddings": _table(config.vocab_size, config.d_model, size, model_dim),
    }
    result = keras.distribution.LayoutMap(device_mesh)
    for name, layout in layouts.items():
        result[f"^(.*/)?{name}$"] = layout  # Keras searches for the pattern, or compares the full path, by version.
    return result


def _table(vocab_size, d_model, size, model_dim):
    """The layout of a table `(vocab_size, d_model)`."""
    if vocab_size % size == 0:
        return model_dim, None
    return (None, model_dim) if d_model % size == 0 else (None, None)
