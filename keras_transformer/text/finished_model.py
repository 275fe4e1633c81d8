"""Loading a finished model with its tokenizers."""

import keras

from keras_transformer.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.saving import load_model
from keras_transformer.text.tokenization import Tokenizer, load_tokenizers


def load_finished(directory: ModelDirectory) -> tuple[keras.Model, tuple[Tokenizer, Tokenizer]]:
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
    model = load_model(directory.model_file, compile=False)
    wanted = (model.config.source_vocabulary, model.config.vocab_size)
    found = tuple(tokenizer.vocab_size for tokenizer in tokenizers)
    if found != wanted:  # Old model directories have no recorded hashes, so only the sizes can be compared.
        raise ModelDirectoryError(
            f"The tokenizers in {directory.path} do not belong to its model. They have {found} subwords "
            f"(source, target), the model has {wanted}"
        )
    return model, tokenizers
