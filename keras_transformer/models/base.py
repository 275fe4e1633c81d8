"""The base class of models that are built from a `TransformerConfig`."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_transformer import masks
from keras_transformer.config import TransformerConfig
from keras_transformer.decoding import Hypotheses, SpecialIds
from keras_transformer.label_shapes import first_pass
from keras_transformer.layers.adaptation import AdaptableModel, quantization_configs, quantize_parts
from keras_transformer.losses import RDropCrossEntropy
from keras_transformer.models.compiled import CompiledSearch

_NO_CLONE = (
    "`keras.models.clone_model` would return a model without the methods of this one. Use `copy.deepcopy(model)`, or, "
    "for new weights, `type(model).from_config(model.get_config())`. Received: model={}"
)


class ConfiguredModel(AdaptableModel, keras.Model, CompiledSearch):
    """Base class of functional models that are built from a `TransformerConfig`.

    `copy.deepcopy` and `pickle` copy a model with its weights, its compilation and the state of its optimizer.
    `type(model).from_config(model.get_config())` is a model with new weights. `keras.models.clone_model` is refused,
    because it would return a plain functional model without `generate`.

    Attributes:
        parts: the `Parts` that made the layers.

    Args:
        inputs: symbolic inputs.
        outputs: symbolic outputs.
        parts: the `Parts` that made the layers.
        **kwargs: arguments of `keras.Model`.
    """

    config: TransformerConfig
    _r_drop = False

    def __init__(self, inputs, outputs, parts, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.dtype_policy = parts.policy
        self.parts = parts

    def compile(self, optimizer="rmsprop", loss=None, *args, r_drop=False, **kwargs):
        """Configures the model for training, as `keras.Model.compile` does.

        Args:
            optimizer: see `keras.Model.compile`.
            loss: see `keras.Model.compile`.
            *args: further arguments of `keras.Model.compile`.
            r_drop: whether training runs two passes with different dropout over each row, for `RDropCrossEntropy`.
            **kwargs: further arguments of `keras.Model.compile`.

        Raises:
            ValueError: if the loss is `RDropCrossEntropy` and `r_drop` is `False`.
        """
        if isinstance(loss, RDropCrossEntropy) and not r_drop:
            raise ValueError("`r_drop` must be True with the loss RDropCrossEntropy. Received: r_drop=False")
        super().compile(optimizer, loss, *args, **kwargs)
        self._r_drop = r_drop

    def get_compile_config(self):
        config = super().get_compile_config()
        return {**config, "r_drop": True} if config and self._r_drop else config

    def compile_from_config(self, config):
        config = keras.saving.deserialize_keras_object(config)
        # In files of earlier versions the loss decides.
        self.compile(**{"r_drop": isinstance(config["loss"], RDropCrossEntropy), **config})
        self.optimizer.build(self.trainable_variables)

    def call(self, inputs, training=None, mask=None):
        if not (training and self._r_drop):
            return self._forward(inputs, training=training, mask=mask)
        logits = self._forward(keras.tree.map_structure(_twice, inputs), training=training)
        rows, *others = ops.shape(logits)
        # (2 * batch, …) -> (batch, 2, …): the two copies of a row are next to each other.
        return ops.reshape(logits, (rows // 2, 2, *others))

    def _forward(self, inputs, training=None, mask=None):
        return super().call(inputs, training=training, mask=mask)

    def _run_through_graph(self, inputs, operation_fn=lambda operation: operation, **kwargs):
        # Keras has no public way to change what `clone_model` does. It runs the graph with copies of the layers.
        def checked(operation):
            made = operation_fn(operation)
            if made is not operation and isinstance(made, keras.Layer):
                raise ValueError(_NO_CLONE.format(self.name))
            return made

        return super()._run_through_graph(inputs, checked, **kwargs)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        y_pred = first_pass(y, y_pred) if self._r_drop else y_pred
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @property
    def special_ids(self) -> SpecialIds:
        """The ids of padding and of the start and end tokens."""
        return SpecialIds(self.config.pad_id, self.config.bos_id, self.config.eos_id)

    @property
    def source_vocabulary(self) -> int | None:
        """Size of the vocabulary of the source ids; `None` if the source is something else."""
        return self.config.source_vocabulary if self.parts.source is None else None

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary of the target."""
        return self.config.vocab_size

    @property
    def max_length(self) -> int | None:
        """Number of learned positions; `None` for other positions."""
        return self.config.max_length

    def _target_mask(self, tokens, segments=None):
        """The mask of target tokens if the start token is also padding; `None` if the implicit mask is right."""
        if self.config.bos_id != self.config.pad_id:
            return None
        if segments is not None:
            return segments != 0
        is_first = ops.equal(ops.cumsum(ops.ones_like(tokens), axis=-1), 1)
        return ops.logical_or(is_first, masks.padding_mask(tokens, self.config.pad_id))

    def _forget_compiled(self):
        self.train_function = self.test_function = self.predict_function = None
        self._compiled_functions.cache_clear()

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "config": dataclasses.asdict(self.config),
            **self.parts.get_config(),
            "trainable": self.trainable,
            "frozen": self._frozen_paths(),
            "quantization": quantization_configs(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        dtype, trainable, frozen = config.pop("dtype", None), config.pop("trainable", True), config.pop("frozen", [])
        quantization = config.pop("quantization", [])
        if isinstance(dtype, dict):
            dtype = keras.dtype_policies.deserialize(dtype)
        architecture = TransformerConfig(**config.pop("config"))
        model = cls(architecture, dtype=dtype, **keras.saving.deserialize_keras_object(config))
        quantize_parts(model, quantization)
        model.trainable = trainable
        for layer in model._flatten_layers():
            if layer.path in frozen:
                layer.trainable = False
        return model

    def _frozen_paths(self):
        """The paths of the layers with `trainable=False` at any depth, without those inside of another one."""
        # Keras has no public method that lists nested layers. Layers without weights have no path.
        frozen = {layer.path for layer in self._flatten_layers() if layer.path and not layer.trainable}
        return sorted(path for path in frozen if path.rpartition("/")[0] not in frozen)


def _twice(x):
    """Repeats each row, next to itself: on several devices, both copies are then on the same one."""
    # Not `reshape` of `stack([x, x])`: TensorFlow's graph optimizer mixes up two of them in one graph.
    return ops.repeat(x, 2, axis=0)


def empty_hypotheses(rows: int, strategy) -> Hypotheses:
    """The `Hypotheses` of length 0 of empty sources."""
    tokens = np.zeros((rows, strategy.n_best, 0), "int32")
    token_scores = tokens.astype("float32") if strategy.token_scores else ()
    return Hypotheses(tokens, np.zeros(tokens.shape[:2], "float32"), token_scores)
