"""What a layer does with parts that a user gives to it: it claims them, sets their dtype policy, and copies them."""

import weakref

import keras

from keras_transformer.layers.seeds import fold_seed, mix_seed, rewritten

#: Part -> weak reference to its owner. An attribute of the part would make the owner a sub-layer of its own part.
_owners = weakref.WeakKeyDictionary()


def copy_layer(layer, name, index=0):
    """Copies a layer from its configuration, with weights and dropout of its own.

    Args:
        layer: a layer whose class is registered with Keras, or a layer serialized by
            `keras.saving.serialize_keras_object`. It may be built; the copy is not.
        name: name of the copy.
        index: number of the copy. Copies of different numbers have different explicit seeds; see `fold_seed`.

    Returns:
        The copy.

    Example:

    >>> layer = keras.layers.Dense(3, kernel_initializer=keras.initializers.HeNormal(seed=7))
    >>> copy = copy_layer(layer, "second", index=1)
    >>> copy.name, copy.units, copy.kernel_initializer.seed
    ('second', 3, 1809491585)
    """
    serialized = keras.saving.serialize_keras_object(layer) if isinstance(layer, keras.Layer) else layer
    return copies({**serialized, "config": {**serialized["config"], "name": name}}, index)


def copies(serialized, index):
    """Makes the objects that `keras.saving.serialize_keras_object` serialized, with seeds of their own; not built."""
    return keras.saving.deserialize_keras_object(fold_seed(rewritten(serialized, _unbuilt), index))


def adopt(layer, policy):
    """Prepares a layer that a user gives for its place in a layer with a dtype policy.

    It gets the policy, and so do its sub-layers, where they were made without `dtype`: such a layer has the global
    policy of Keras itself, the same object. It supports masks: the mask of the inputs becomes that of the output,
    whatever the part does, and Keras would warn about a part that does not support masks. Call it before the layer is
    built.

    Args:
        layer: a layer.
        policy: a `keras.DTypePolicy`.

    Returns:
        The layer.

    Example:

    >>> adopt(keras.layers.Dense(3), keras.DTypePolicy("mixed_bfloat16")).compute_dtype
    'bfloat16'
    >>> adopt(keras.layers.Dense(3, dtype="float32"), keras.DTypePolicy("mixed_bfloat16")).compute_dtype
    'float32'
    """
    default = keras.config.dtype_policy()
    for part in layer._flatten_layers():  # Keras has no public method that lists nested sub-layers.
        if part.dtype_policy is default:
            part.dtype_policy = policy
    layer.supports_masking = True
    return layer


def serialized_part(part) -> dict:
    """The configuration of a layer or another object. Where a layer was made without `dtype`, the policy is left out.

    The copies that are made of it get the policy of their owner by `adopt`.
    """
    default = keras.config.dtype_policy()
    layers = part._flatten_layers() if isinstance(part, keras.Layer) else ()
    without_dtype = [layer for layer in layers if layer.dtype_policy is default]
    for layer in without_dtype:
        layer.dtype_policy = _NotGiven(default.name)
    try:
        return rewritten(keras.saving.serialize_keras_object(part), _without_marks)
    finally:
        for layer in without_dtype:
            layer.dtype_policy = default


class _NotGiven(keras.DTypePolicy):
    """Marks the policies that were not given in a configuration."""


def _without_marks(config):
    return None if config.get("class_name") == _NotGiven.__name__ else config


def copied_arguments(arguments, index) -> dict:
    """Arguments of one of several equal layers, whose layers and initializers are serialized, with seeds of its own."""
    seed = {"seed": mix_seed(arguments["seed"], index)} if "seed" in arguments else {}
    made = {name: copies(value, index) for name, value in arguments.items() if isinstance(value, dict)}
    return {**arguments, **made, **seed}


def claim(part, owner):
    """Makes a layer the owner of a part.

    Keras cannot load a file in which one layer is a part of two others. Call it when nothing else can fail, because a
    block that was refused may still exist in a traceback.

    Args:
        part: a layer.
        owner: the layer that contains it.

    Raises:
        ValueError: if the layer has an owner.
    """
    other = _owners.get(part, lambda: None)()
    if other is not None:
        raise ValueError(
            "A layer must be a part of one block only: Keras could not load a saved model with it in two. Make one "
            "layer for each block. To share weights, call one block twice. "
            f"Received: {part.name}, a part of {other.name} and {owner.name}"
        )
    _owners[part] = weakref.ref(owner)


def _unbuilt(config):
    """The configuration without the shapes from which Keras would build it, and without the id of the object.

    While Keras loads a file, it makes one object of all configurations with one id.
    """
    return {key: value for key, value in config.items() if key not in ("build_config", "shared_object_id")}
