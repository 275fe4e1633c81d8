"""Low-rank adaptation and quantization of layers made of other layers: Keras's own, applied to their parts."""

import keras

#: The layers of Keras to which LoRA is added; `TokenEmbedding` is one.
_ADAPTED = (keras.layers.Dense, keras.layers.Embedding)


class Composite(keras.layers.Layer):
    """Base of layers made of other layers: LoRA, and a quantization that is saved with the layer."""

    def enable_lora(self, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
        """Freezes every weight and adds trainable low-rank matrices to the projections and embeddings.

        Saved weights hold the matrices' products, so they load into a layer without LoRA; load a compiled model with
        `compile=False`. `compile` a model again afterwards.

        Args:
            rank: of the matrices.
            lora_alpha: their product is scaled by `lora_alpha / rank`. Default: `rank`.
            a_initializer: of the first matrix.
            b_initializer: of the second.

        Raises:
            ValueError: if the layer is not built, has LoRA already, or `rank` is not positive.

        Reference:
            Hu et al. 2021, "LoRA", §4.1.
        """
        add_lora(self, rank, lora_alpha, a_initializer, b_initializer)

    def get_build_config(self):
        config = super().get_build_config()
        quantization = quantization_configs(self)
        return {**(config or {}), "quantization": quantization} if quantization else config

    def build_from_config(self, config):
        config = dict(config)
        quantization = config.pop("quantization", [])
        super().build_from_config(config)
        quantize_parts(self, quantization)


def add_lora(layer, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
    """`Composite.enable_lora`, of a layer or a model.

    Args:
        layer: a built layer.
        rank: as of `Composite.enable_lora`.
        lora_alpha: as there.
        a_initializer: as there.
        b_initializer: as there.
    """
    if not rank >= 1:
        raise ValueError(f"`rank` must be at least 1. Received: rank={rank}")
    parts = _parts(layer, _ADAPTED)
    if not all(part.built for part in parts):
        raise ValueError(f"A layer must be built before LoRA is added. Received: {layer.name}")
    if has_lora(layer):
        raise ValueError(f"LoRA can be added only once. Received: {layer.name}")
    for weight in layer.trainable_weights:
        weight.trainable = False
    for part in parts:
        part.enable_lora(rank, lora_alpha, a_initializer, b_initializer)


def has_lora(layer) -> bool:
    """Whether LoRA was added to a part of it.

    Args:
        layer: a layer or a model.
    """
    return any(part.lora_enabled for part in _parts(layer, _ADAPTED))


def is_projection(layer) -> bool:
    """Whether it is a layer that Keras can quantize.

    Args:
        layer: any layer.
    """
    return isinstance(layer, keras.layers.Dense)


def quantization_configs(layer) -> list[dict | None]:
    """How each projection in a layer is quantized, in the order of their making.

    Args:
        layer: a layer or a model.

    Returns:
        Serialized configurations of Keras; nothing if no projection is quantized.
    """
    configs = [getattr(part, "quantization_config", None) for part in _parts(layer, keras.layers.Dense)]
    return [keras.saving.serialize_keras_object(config) for config in configs] if any(configs) else []


def quantize_parts(layer, configs):
    """Quantizes the projections of a new layer, so that saved weights fit.

    Args:
        layer: a built layer or model.
        configs: from `quantization_configs`.
    """
    if configs:
        for part, config in zip(_parts(layer, keras.layers.Dense), configs, strict=True):
            if config:
                part.quantize(config=keras.saving.deserialize_keras_object(config))


def _parts(layer, kinds):
    # Keras has no public way to all the layers in a layer.
    return [part for part in layer._flatten_layers() if isinstance(part, kinds)]
