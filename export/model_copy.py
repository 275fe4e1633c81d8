"""Copies of models with another dtype."""

import copy

import keras

from keras_transformer.layers.adaptation import has_lora
from keras_transformer.layers.seeds import rewritten
from keras_transformer.models import Ensemble
from keras_transformer.models.base import ConfiguredModel


def copy_with_dtype(model, dtype: str):
    """Copies a model with other weight and compute dtypes, and LoRA merged. Operations that require float32 keep it."""
    if has_lora(model):
        model = copy.deepcopy(model)  # Merges LoRA.
    if isinstance(model, Ensemble):
        return Ensemble([copy_with_dtype(part, dtype) for part in model.models])
    if isinstance(model, ConfiguredModel):
        made = type(model).from_config({**_in_float32(model.get_config()), "dtype": dtype})
    else:
        made = _rebuilt(model, dtype)
    made.set_weights(model.get_weights())
    return made


def is_float32(model) -> bool:
    """Whether all layers of a model compute in float32."""
    return all(layer.compute_dtype == "float32" for layer in model._flatten_layers())


def _in_float32(config):
    """The configuration of a model whose source, a model of its own dtype, has float32."""
    return {**config, "source": rewritten(config["source"], _with_policy("float32"))} if "source" in config else config


def _with_policy(dtype, own=None):
    """Replaces dtype policies in a configuration: all, or those of the name `own`."""

    def changed(config):
        is_policy = config.get("class_name") == "DTypePolicy" and own in (None, config["config"]["name"])
        return {**config, "config": {"name": dtype}} if is_policy else config

    return changed


def _rebuilt(model, dtype):
    """A copy of a user's model. Layers with the dtype of the model get the new one."""
    changed = _with_policy(dtype, model.dtype_policy.name)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)  # For the layers that a class makes without `dtype`.
    try:
        made = type(model).from_config(rewritten(model.get_config(), changed))
        if not made.built:
            made.build()
    finally:
        keras.config.set_dtype_policy(before)
    return made
