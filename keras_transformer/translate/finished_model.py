"""Loading a finished model with its tokenizers. The slow import of Keras comes after the checks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.text.tokenization import Tokenizer

if TYPE_CHECKING:
    import keras


def load_finished(directory: ModelDirectory) -> "tuple[keras.Model, tuple[Tokenizer, Tokenizer]]":
    """Loads the `Transformer` of a finished model directory, without optimizer, and its tokenizers.

    Args:
        directory: the model directory.

    Returns:
        The model, and a tuple of the source tokenizer and the target tokenizer.

    Raises:
        ValueError: if the directory contains no finished model, the model file cannot be read, or a tokenizer belongs
            to another model.
    """
    record = directory.require_finished()
    tokenizers = load_tokenizers(directory, record.get("tokenizers_sha256"))
    from keras_transformer.saving import load_model

    model = load_model(directory.model_file, compile=False)
    wanted = (model.config.source_vocabulary, model.config.vocab_size)
    found = tuple(tokenizer.vocab_size for tokenizer in tokenizers)
    if found != wanted:  # Old model directories have no recorded hashes, so only the sizes can be compared.
        raise ModelDirectoryError(
            f"The tokenizers in {directory.path} do not belong to its model. They have {found} subwords "
            f"(source, target), the model has {wanted}"
        )
    return model, tokenizers


def load_ensemble(directories: Sequence[ModelDirectory]) -> "tuple[keras.Model, tuple[Tokenizer, Tokenizer]]":
    """Loads the model of one directory, or the models of several as an `Ensemble`.

    Args:
        directories: model directories with the same tokenizers.

    Returns:
        See `load_finished`.

    Raises:
        ValueError: see `load_finished`; also if there is no directory, or the tokenizers differ.
    """
    if not directories:
        raise ValueError("At least one model directory is required. Received: none")
    for directory in directories:
        directory.require_finished()
    for directory in directories[1:]:
        if directory.tokenizer_models() != directories[0].tokenizer_models():
            raise ModelDirectoryError(
                f"The models of an ensemble must have the same tokenizers. Received: {directories[0].path} and "
                f"{directory.path}, whose tokenizers differ"
            )
    models, tokenizers = zip(*map(load_finished, directories), strict=True)
    if len(models) == 1:
        return models[0], tokenizers[0]
    from keras_transformer.models import Ensemble

    return Ensemble(models), tokenizers[0]
