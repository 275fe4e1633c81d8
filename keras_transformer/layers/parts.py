"""Parts of layers: how a layer adopts, copies and calls the layers that a user gives to it."""

import keras


def adopt(part, policy):
    """Makes a layer that a user gives a part of a layer with a dtype policy.

    A part that was made without `dtype` gets the policy. The mask of the inputs becomes that of the output, whatever
    the part does: otherwise Keras would warn about a part that does not support masks.

    Returns:
        The part.
    """
    default = keras.config.dtype_policy()  # The very object that a layer without `dtype` has.
    for layer in part._flatten_layers():
        if layer.dtype_policy is default:
            layer.dtype_policy = policy
    part.supports_masking = True
    return part


def serialized_part(part) -> dict:
    """The configuration of a part, without the dtype policy if the part was made without `dtype`."""
    config = keras.saving.serialize_keras_object(part)
    if part.dtype_policy is keras.config.dtype_policy():
        config["config"]["dtype"] = None
    return config


def copy_layer(layer, name: str, index: int = 0):
    """Copies a layer, or makes one from its serialized configuration, without its weights."""
    config = keras.saving.serialize_keras_object(layer) if isinstance(layer, keras.Layer) else layer
    config = {**config, "config": {**config["config"], "name": name}}
    return keras.saving.deserialize_keras_object(_without_shared_ids(config))


def _without_shared_ids(config):
    """While Keras loads a model, two configurations with one `shared_object_id` would give one object."""
    if isinstance(config, dict):
        return {key: _without_shared_ids(value) for key, value in config.items() if key != "shared_object_id"}
    return [_without_shared_ids(value) for value in config] if isinstance(config, list) else config


def claim(part, owner):
    """Refuses a part that another layer has."""
