"""Copies of models with another dtype."""

import keras

from keras_transformer.layers.seeds import rewritten
from keras_transformer.models import Ensemble
from keras_transformer.models.base import ConfiguredModel


def copy_with_dtype(model, dtype: str):
    """Copies a model with other weight and compute dtypes. Operations that require float32 keep it."""
    if isinstance(model, Ensemble):
        return Ensemble([copy_with_dtype(part, dtype) for part in model.models])
    if isinstance(model, ConfiguredModel):
        copy = type(model).from_config({**model.get_config(), "dtype": dtype})
    else:
        copy = _rebuilt(model, dtype)
    copy.set_weights(model.get_weights())
    return copy


def _rebuilt(model, dtype):
    """A copy of a user's model. Layers with the dtype of the model get the new one."""
    own = model.dtype_policy.name

    def changed(config):
        is_policy = config.get("class_name") == "DTypePolicy" and config["config"]["name"] == own
        return {**config, "config": {"name": dtype}} if is_policy else config

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)  # For the layers that a class makes without `dtype`.
    try:
        copy = type(model).from_config(rewritten(model.get_config(), changed))
        if not copy.built:
            copy.build()
    finally:
        keras.config.set_dtype_policy(before)
    return copy
