"""LoRA and int8 of Keras for composite layers and models, which apply them to the Keras layers inside of them."""

from collections.abc import Sequence

import keras

from keras_transformer.checks import counts, require
from keras_transformer.layers.adapter_files import read_adapter, write_adapter
from keras_transformer.layers.adapters import ADAPTED, Adapters
from keras_transformer.layers.configured import Configured
from keras_transformer.layers.recomputation import Recomputable


class Adaptable:
    """The methods for LoRA that all composite layers and models of this package have.

    An adapter is a set of low-rank matrices with a name. At most one adapter is active: its matrices are weights of the
    layer, and all other weights are frozen. The other adapters wait in memory.
    """

    name: str
    trainable_weights: list
    _adapters: Adapters | None = None

    def enable_lora(
        self,
        rank,
        lora_alpha=None,
        a_initializer="he_uniform",
        b_initializer="zeros",
        targets: Sequence[str] | None = None,
        name="default",
    ):
        """Freezes every weight and adds trainable low-rank matrices to projections and embeddings: a new adapter.

        The new adapter becomes the active one. Call `compile` again afterwards. Saved files contain the merged weights
        of the active adapter and load without LoRA. Models of this package load uncompiled. Load other compiled models
        with `compile=False`.

        Args:
            rank: rank of the matrices.
            lora_alpha: the product of the two matrices is scaled by `lora_alpha / rank`. Default: `rank`.
            a_initializer: initializer of the first matrix.
            b_initializer: initializer of the second matrix.
            targets: which projections and embeddings get matrices: a list of layer names or parts of weight paths, such
                as `["query", "value"]` or `["decoder/layer_*/cross_attention"]`. Default: all.
            name: name of the adapter.

        Raises:
            ValueError: if the layer is not built, `rank` is not a positive integer, a target matches nothing, `name` is
                that of an adapter of the layer, or LoRA was added to a layer inside of this one or around it.

        Reference:
            Hu et al. 2021, "LoRA", §4.1.
        """
        require(counts(1, rank=rank))
        adapters = self._adapters_for_new(name)
        self._activate(adapters, name, adapters.new(rank, lora_alpha, targets, a_initializer, b_initializer))

    def save_adapter(self, path, name=None):
        """Writes an adapter to a file, without the weights of the layer.

        The file is an `.npz` file of NumPy. It contains the matrices, their rank, scale and targets, and the shapes of
        all projections and embeddings of the layer.

        Args:
            path: path of the file.
            name: name of the adapter. Default: the active one.

        Raises:
            ValueError: if there is no adapter of this name, or no active one.
        """
        adapters, name = self._existing(name)
        write_adapter(path, adapters.current(name), adapters.shapes)

    def load_adapter(self, path, name="default"):
        """Adds an adapter from a file. It becomes the active one, and it can be trained further.

        Args:
            path: path of a file that `save_adapter` wrote.
            name: name of the adapter in this layer.

        Raises:
            ValueError: if the file is not valid, or the projections and embeddings of the layer do not have the names
                and shapes in the file; see also `enable_lora`. The layer is not changed then.
        """
        adapters = self._adapters_for_new(name)
        adapter, shapes = read_adapter(path)
        rule = f"The adapter must be for a layer with these parts. Received: path={path}, layer={self.name}"
        require(adapters.problems(adapter, shapes), of=rule)
        self._activate(adapters, name, adapter)

    def set_adapter(self, name):
        """Makes another adapter the active one, or none.

        If both adapters have the same rank, scale and targets, compiled functions stay valid. Otherwise call `compile`
        again before you train or evaluate the model.

        Args:
            name: name of an adapter. With `None` no adapter is active: the layer computes the same as without adapters,
                and its weights are trainable as before.

        Raises:
            ValueError: if there is no adapter of this name.
        """
        if name is not None:
            self._existing(name)
        if self._adapters is not None:
            self._activate(self._adapters, name)

    def merge_lora(self):
        """Adds the matrices of the active adapter to the weights, and removes all adapters.

        Raises:
            ValueError: if no adapter is active.
        """
        adapters, _ = self._existing(None)
        adapters.merge()
        self._adapters = None
        self._weights_replaced()

    def _adapters_for_new(self, name) -> Adapters:
        """The adapters of this layer, to which one with this name can be added."""
        if not all(part.built for part in _parts(self, ADAPTED)):
            raise ValueError(f"The layer must be built before LoRA is added. Received: layer={self.name}")
        adapters = self._adapters or Adapters(self)
        if not isinstance(name, str) or not name or name in adapters.by_name:
            raise ValueError(f"`name` must be a new name. Received: name={name!r}, adapters={[*adapters.by_name]}")
        return adapters

    def _existing(self, name) -> tuple[Adapters, str]:
        """The adapters of this layer, and the given name, by default that of the active adapter."""
        adapters = self._adapters
        found = adapters.active if name is None and adapters is not None else name
        if adapters is None or found not in adapters.by_name:
            rule = "An adapter must be active." if name is None else "`name` must be that of an adapter."
            known = [] if adapters is None else [*adapters.by_name]
            raise ValueError(f"{rule} Received: name={name!r}, adapters={known}")
        return adapters, found

    def _activate(self, adapters, name, adapter=None):
        if adapters.activate(name, adapter):
            self._weights_replaced()
        self._adapters = adapters

    def _weights_replaced(self):
        """Prepares a model for the weights that LoRA has added or removed."""


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
    """Base class of models with adapters and `quantize`, beside `keras.Model`."""

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

    def _weights_replaced(self):
        self.compiled = False  # The optimizer was for other weights.
        self._forget_compiled()

    def _forget_compiled(self):
        """Discards compiled functions, which do not contain the new weights."""

    def get_compile_config(self):
        # The optimizer state belongs to the low-rank matrices, which a loaded model does not have.
        return None if has_lora(self) else keras.Model.get_compile_config(self)


def has_lora(layer) -> bool:
    """Whether a layer inside of a layer or model has LoRA."""
    return any(part.lora_enabled for part in _parts(layer, ADAPTED))


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
