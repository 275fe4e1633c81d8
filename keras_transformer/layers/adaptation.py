"""LoRA and int8 of Keras for composite layers and models, which apply them to the Keras layers inside of them."""

import keras

from keras_transformer.checks import at_least, require
from keras_transformer.layers.configured import Configured
from keras_transformer.layers.recomputation import Recomputable

#: Keras layers that support LoRA. `TokenEmbedding` is a `keras.layers.Embedding`.
_ADAPTED = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


class Adaptable:
    """The method `enable_lora` of composite layers and models, which are Keras layers."""

    name: str
    trainable_weights: list

    def enable_lora(self, rank, lora_alpha=None, a_initializer="he_uniform", b_initializer="zeros"):
        """Freezes every weight and adds trainable low-rank matrices to the projections and embeddings.

        Call `compile` again afterwards. Saved files contain the merged weights and load without LoRA. Models of this
        package load uncompiled. Load other compiled models with `compile=False`.

        Args:
            rank: rank of the matrices.
            lora_alpha: the product of the two matrices is scaled by `lora_alpha / rank`. Default: `rank`.
            a_initializer: initializer of the first matrix.
            b_initializer: initializer of the second matrix.

        Raises:
            ValueError: if a layer is not built, LoRA was added already, or `rank` is not positive.

        Reference:
            Hu et al. 2021, "LoRA", §4.1.
        """
        require(at_least(1, rank=rank))
        parts = _parts(self, _ADAPTED)
        if not all(part.built for part in parts):
            raise ValueError(f"The layer must be built before LoRA is added. Received: layer={self.name}")
        if has_lora(self):
            raise ValueError(f"LoRA can be added only once. Received: layer={self.name}")
        for weight in self.trainable_weights:
            weight.trainable = False
        for part in parts:
            part.enable_lora(rank, lora_alpha, a_initializer, b_initializer)
        self._forget_compiled()

    def _forget_compiled(self):
        """Discards compiled functions, which do not contain the new matrices."""


class Composite(Adaptable, Recomputable, Configured):
    """Base class of composite layers. It saves with the layer which of its parts are quantized and which are frozen."""

    def get_build_config(self):
        config = super().get_build_config()
        settings = {"quantization": quantization_configs(self), "frozen": _frozen_parts(self)}
        # Keras takes a layer with any of this for built.
        settings = {name: value for name, value in settings.items() if value and self.built}
        return {**(config or {}), **settings} if settings else config

    def build_from_config(self, config):
        config = dict(config)
        quantization, frozen = config.pop("quantization", []), config.pop("frozen", [])
        super().build_from_config(config)
        quantize_parts(self, quantization)
        _freeze_parts(self, frozen)


class AdaptableModel(Adaptable):
    """Base class of models with `enable_lora` and `quantize`, beside `keras.Model`."""

    def quantize(self, mode=None, config=None):
        """Quantizes the projections to int8 with Keras. Embeddings and logits are not quantized.

        Saving and loading keep the quantization. A quantized model cannot be exported; to export int8 weights, use
        `keras-transformer export --quantize int8` with the unquantized model.

        Args:
            mode: `"int8"`.
            config: `keras.quantizers.Int8QuantizationConfig`, instead of `mode`.

        Raises:
            ValueError: if `mode` is not `"int8"`.
        """
        if mode != "int8":
            raise ValueError(
                f"`mode` must be 'int8'; for other formats see keras-transformer export --help. Received: mode={mode!r}"
            )
        keras.Model.quantize(self, mode, config=config, filters=lambda layer: isinstance(layer, keras.layers.Dense))
        self._forget_compiled()

    def get_compile_config(self):
        # The optimizer state belongs to the low-rank matrices, which a loaded model does not have.
        return None if has_lora(self) else keras.Model.get_compile_config(self)


def has_lora(layer) -> bool:
    """Whether a layer inside of a layer or model has LoRA."""
    return any(part.lora_enabled for part in _parts(layer, _ADAPTED))


def quantization_configs(layer) -> list[dict | None]:
    """The serialized quantization of each projection, in order of creation. Empty if no projection is quantized."""
    configs = [getattr(part, "quantization_config", None) for part in _parts(layer, keras.layers.Dense)]
    return [keras.saving.serialize_keras_object(config) for config in configs] if any(configs) else []


def quantize_parts(layer, configs):
    """Quantizes the projections as in `quantization_configs`, before quantized weights are loaded into them."""
    if configs:
        for part, config in zip(_parts(layer, keras.layers.Dense), configs, strict=True):
            if config and part.quantization_mode is None:  # A part with a configuration of its own is quantized.
                part.quantize(config=keras.saving.deserialize_keras_object(config))


def _frozen_parts(layer) -> list[int]:
    """The numbers of the parts with `trainable=False`, in order of creation. Keras saves the layer's own value only."""
    return [i for i, part in enumerate(_parts(layer, keras.layers.Layer)) if part is not layer and not part.trainable]


def _freeze_parts(layer, numbers):
    parts = _parts(layer, keras.layers.Layer)
    for i in numbers:
        parts[i].trainable = False


def _parts(layer, kinds):
    # Keras has no public method that lists nested sub-layers.
    return [part for part in layer._flatten_layers() if isinstance(part, kinds)]
