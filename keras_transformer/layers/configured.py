"""Base class of layers whose configuration consists of their arguments."""

import inspect

import keras


class Configured(keras.layers.Layer):
    """A layer that keeps each argument as an attribute of the same name, from which `get_config` reads it.

    A user's subclass must keep each of its arguments so, or override `get_config`.
    """

    def get_config(self):
        names = _argument_names(type(self))
        unknown = [name for name, cls in names.items() if not _is_ours(cls) and not hasattr(self, name)]
        if unknown:
            raise NotImplementedError(
                f"{type(self).__name__} must keep its arguments as attributes of the same names, or override "
                f"`get_config`. Received: no attribute {', '.join(unknown)}"
            )
        arguments = {name: getattr(self, name) for name in names if hasattr(self, name)}
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
    """Argument -> class, for a class and its base classes, except a user's class that defines `get_config`."""
    classes = [
        cls
        for cls in reversed(layer_class.__mro__)
        if issubclass(cls, Configured) and "__init__" in vars(cls) and (_is_ours(cls) or "get_config" not in vars(cls))
    ]
    return {
        parameter.name: cls
        for cls in classes
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def _is_ours(cls):
    return cls.__module__.split(".")[0] == __name__.split(".")[0]
