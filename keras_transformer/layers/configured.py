"""Base class of layers whose configuration consists of their arguments."""

import inspect

import keras


class Configured(keras.layers.Layer):
    """A layer that keeps each argument as an attribute of the same name, from which `get_config` reads it.

    A user's subclass may do the same, or extend `get_config` by its arguments, as in Keras.
    """

    def get_config(self):
        arguments = {name: getattr(self, name) for name in _argument_names(type(self)) if hasattr(self, name)}
        return {**keras.saving.serialize_keras_object(arguments), **super().get_config()}

    @classmethod
    def from_config(cls, config):
        return cls(**keras.saving.deserialize_keras_object(config))


def shows_arguments_of(base):
    """Decorates an `__init__` that passes its positional arguments on to `base`: `help` shows their names, too."""
    passed_on = [p for p in inspect.signature(base.__init__).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]

    def decorate(init):
        own = [p for p in inspect.signature(init).parameters.values() if p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
        init.__signature__ = inspect.Signature([*passed_on, *own])
        return init

    return decorate


def _argument_names(layer_class):
    """Names of the arguments of a class and its base classes, except of a user's class that defines `get_config`."""
    classes = [
        cls
        for cls in reversed(layer_class.__mro__)
        if issubclass(cls, Configured) and "__init__" in vars(cls) and (_is_ours(cls) or "get_config" not in vars(cls))
    ]
    parameters = [p for cls in classes for p in inspect.signature(cls).parameters.values()]
    return dict.fromkeys(p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def _is_ours(cls):
    return cls.__module__.split(".")[0] == __name__.split(".")[0]
