"""Loading models: importing this module registers every class of the package with Keras."""

import os
import zipfile

import keras

import keras_transformer.layers
import keras_transformer.losses
import keras_transformer.metrics
import keras_transformer.models
import keras_transformer.schedules  # noqa: F401


def load_model(path, compile=True):
    """Loads a `.keras` file that holds layers or models of this package, in a fresh process too.

    Args:
        path: the file.
        compile: whether to restore optimizer, loss and metrics.

    Returns:
        The Keras model.

    Raises:
        ValueError: if there is no such file, or it is not a Keras model.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"Not a whole Keras model: {path} ({'cut short' if os.path.exists(path) else 'no such file'})")
    try:
        return keras.saving.load_model(path, compile=compile)
    except (OSError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"Not a whole Keras model: {path} ({error})") from error
