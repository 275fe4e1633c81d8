"""Loading models: importing this module registers every class of the package with Keras."""

import pathlib
import zipfile

import keras

import keras_transformer.layers
import keras_transformer.losses
import keras_transformer.metrics
import keras_transformer.models
import keras_transformer.optimizers
import keras_transformer.schedules  # noqa: F401
from keras_transformer.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.text.tokenization import Tokenizer, load_tokenizers


def load_model(path, compile=True):
    """Loads a `.keras` file that holds layers or models of this package, in a fresh process too.

    Args:
        path: the file.
        compile: whether to restore optimizer, loss and metrics.

    Returns:
        The Keras model.

    Raises:
        ValueError: if there is no such file, or it is a folder or no Keras model.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(_why_not_a_model(pathlib.Path(path)))
    try:
        return keras.saving.load_model(path, compile=compile)
    except (OSError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"Not a whole Keras model: {path} ({error})") from error


def _why_not_a_model(path):
    if path.is_dir():
        inside = ModelDirectory(path).model_file
        hint = f"; its model is {inside}" if inside.exists() else ""
        return f"`path` must be a .keras file, not a folder{hint}. Received: path={path}"
    if not path.exists():
        return f"Not a whole Keras model: {path} (no such file)"
    with path.open("rb") as file:
        if file.read(2) == b"PK":  # A .keras file is a ZIP archive.
            return f"Not a whole Keras model: {path} (cut short)"
    return f"`path` must be a .keras file, as `model.save` writes it. Received: path={path}"


def load_finished(directory: ModelDirectory) -> tuple[keras.Model, tuple[Tokenizer, Tokenizer]]:
    """The `Transformer` of a finished model directory, without optimizer, and its tokenizers.

    Args:
        directory: the model directory.

    Returns:
        The model, and the tokenizers of the source and of the target.

    Raises:
        ValueError: if the directory holds no finished model, its weights cannot be read, or its
            tokenizer is another model's.
    """
    record = directory.require_finished()
    tokenizers = load_tokenizers(directory, record.get("tokenizers_sha256"))
    model = load_model(directory.model_file, compile=False)
    wanted = (model.config.source_vocabulary, model.config.vocab_size)
    found = tuple(tokenizer.vocab_size for tokenizer in tokenizers)
    if found != wanted:  # All that can be said of directories that were written before hashes were recorded.
        raise ModelDirectoryError(
            f"The tokenizer in {directory.path} is not the one of its model: {found} subwords of source and target, "
            f"where the model has {wanted}"
        )
    return model, tokenizers
