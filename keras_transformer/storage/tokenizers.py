"""The tokenizers of a model directory."""

from collections.abc import Sequence

from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.text.tokenization import Tokenizer


def load_tokenizers(directory: ModelDirectory, sha256: Sequence[str] | None = None) -> tuple[Tokenizer, Tokenizer]:
    """Loads the source tokenizer and the target tokenizer of a model directory.

    Args:
        directory: the model directory.
        sha256: expected hashes of the source tokenizer and the target tokenizer. Default: not checked.

    Returns:
        The source tokenizer and the target tokenizer. A shared tokenizer is returned twice.

    Raises:
        ValueError: see `Tokenizer`; also if a hash differs from `sha256`.
    """
    tokenizers = {path: Tokenizer(path) for path in directory.tokenizer_files}
    source, target = (tokenizers[path] for path in directory.tokenizer_files)
    if sha256 and list(sha256) != [source.sha256, target.sha256]:
        raise ModelDirectoryError(f"The tokenizers in {directory.path} do not belong to its model")
    return source, target
