"""LoRA and quantization of composite layers, by applying the Keras implementations to their sub-layers."""

import keras

from keras_transformer.checks import at_least, require

#: Keras layers that support LoRA. `TokenEmbedding` is a `keras.layers.Embedding`.
_ADAPTED = (keras.layers.Dense, keras.layers.Embedding)


class Composite(keras.layers.Layer):
    """Base class of composite layers. It adds `enable_lora` and saves quantization settings with the layer."""

    def enable_lora(self, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
        """Freezes every weight and adds trainable low-rank matrices to the projections and embeddings.

        Call `compile` again afterwards. Saved weights contain the low-rank updates, so they load into a layer without
        LoRA. Load a saved model that was compiled with `compile=False`.

        Args:
            rank: rank of the matrices.
            lora_alpha: the product of the two matrices is scaled by `lora_alpha / rank`. Default: `rank`.
            a_initializer: initializer of the first matrix.
            b_initializer: initializer of the second matrix.

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
    """Implements `Composite.enable_lora` for a layer or a model.

    Args:
        layer: a built layer or model.
        rank: see `Composite.enable_lora`.
        lora_alpha: see `Composite.enable_lora`.
        a_initializer: see `Composite.enable_lora`.
        b_initializer: see `Composite.enable_lora`.
    """
    require(at_least(1, rank=rank))
    parts = _parts(layer, _ADAPTED)
    if not all(part.built for part in parts):
        raise ValueError(f"The layer must be built before LoRA is added. Received: layer={layer.name}")
    if has_lora(layer):
        raise ValueError(f"LoRA can be added only once. Received: layer={layer.name}")
    for weight in layer.trainable_weights:
        weight.trainable = False
    for part in parts:
        part.enable_lora(rank, lora_alpha, a_initializer, b_initializer)


def has_lora(layer) -> bool:
    """Whether a sub-layer has LoRA.

    Args:
        layer: a layer or a model.
    """
    return any(part.lora_enabled for part in _parts(layer, _ADAPTED))


def is_projection(layer) -> bool:
    """Whether Keras can quantize the layer.

    Args:
        layer: any layer.
    """
    return isinstance(layer, keras.layers.Dense)


def quantization_configs(layer) -> list[dict | None]:
    """Quantization settings of the projections in a layer, in order of creation.

    Args:
        layer: a layer or a model.

    Returns:
        Serialized Keras quantization configurations, `None` for projections that are not quantized. Empty if no
        projection is quantized.
    """
    configs = [getattr(part, "quantization_config", None) for part in _parts(layer, keras.layers.Dense)]
    return [keras.saving.serialize_keras_object(config) for config in configs] if any(configs) else []


def quantize_parts(layer, configs):
    """Quantizes the projections of a new layer, before quantized weights are loaded into it.

    Args:
        layer: a built layer or model.
        configs: from `quantization_configs`.
    """
    if configs:
        for part, config in zip(_parts(layer, keras.layers.Dense), configs, strict=True):
            if config:
                part.quantize(config=keras.saving.deserialize_keras_object(config))


def _parts(layer, kinds):
    # Keras has no public method that lists nested sub-layers.
    return [part for part in layer._flatten_layers() if isinstance(part, kinds)]
