"""Saving and loading models: importing this module registers every class of the package with Keras."""

import contextlib
import os
import pathlib
import re
import zipfile

import keras

import keras_transformer.layers
import keras_transformer.losses
import keras_transformer.metrics
import keras_transformer.models
import keras_transformer.optimizers
import keras_transformer.schedules  # noqa: F401

#: Number of weights beyond which Keras writes and reads them in a temporary file beside the model. In memory, it needs
#: two copies of them, even if the memory that is free holds only one.
_MOST_IN_MEMORY = 100_000_000


@contextlib.contextmanager
def large_weights_on_disk():
    """Lets Keras save and load the weights of large models in a temporary file, whatever memory is free."""
    from keras.src.saving import saving_lib  # No public function says where the weights are put together.

    decide = saving_lib.is_memory_sufficient
    saving_lib.is_memory_sufficient = lambda model: model.count_params() <= _MOST_IN_MEMORY and decide(model)
    try:
        yield
    finally:
        saving_lib.is_memory_sufficient = decide


def load_model(path, compile=True):
    """Loads a `.keras` file with layers or models of this package. `custom_objects` are not needed.

    The weights of a large model are extracted to a temporary file beside it, unless that folder is read-only.

    Args:
        path: path of the `.keras` file.
        compile: whether to restore optimizer, loss and metrics.

    Returns:
        The Keras model.

    Raises:
        ValueError: if the file does not exist, is a folder, is not a valid Keras model, or contains a class that is
            not registered.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(_why_not_a_model(pathlib.Path(path)))
    is_writable = os.access(pathlib.Path(path).parent, os.W_OK)
    try:
        with large_weights_on_disk() if is_writable else contextlib.nullcontext():
            return keras.saving.load_model(path, compile=compile)
    except (OSError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"Not a valid Keras model: {path} ({error})") from error
    except TypeError as error:
        if unknown := re.search(r"Could not locate (class|function) '([^']*)'", str(error)):
            raise ValueError(_not_registered(path, *unknown.groups())) from error
        raise


def _not_registered(path, kind, name):
    return (
        f"The module that registers the {kind} {name} must be imported before {path} is loaded (on the command line: "
        f"`--import MODULE`), and {name} must have the decorator `keras.saving.register_keras_serializable`"
    )


def _why_not_a_model(path):
    if path.is_dir():
        inside = next(path.glob("*.keras"), None)
        hint = f"; the model is the file {inside} in it" if inside else ""
        return f"`path` must be a .keras file, not a folder{hint}. Received: path={path}"
    if not path.exists():
        return f"Not a valid Keras model: {path} (no such file)"
    with path.open("rb") as file:
        if file.read(2) == b"PK":  # A .keras file is a ZIP archive.
            return f"Not a valid Keras model: {path} (the file is truncated)"
    return f"`path` must be a .keras file, written by `model.save`. Received: path={path}"
