"""Folders with tokenizers: their files, and loading them."""

from collections.abc import Sequence
from pathlib import Path

from keras_transformer.storage.atomic_files import atomic_write
from keras_transformer.storage.recorded_folder import ModelDirectoryError, RecordedFolder
from keras_transformer.text.tokenization import Tokenizer

#: Files of a shared tokenizer, a source tokenizer and a target tokenizer.
TOKENIZERS = ("tokenizer.model", "source_tokenizer.model", "target_tokenizer.model")


class TokenizerFolder(RecordedFolder):
    """A folder with a shared tokenizer, or a source tokenizer and a target tokenizer.

    The tokenizers are serialized SentencePiece models, `(shared,)` or `(source, target)`.
    """

    @property
    def tokenizer_files(self) -> tuple[Path, Path]:
        """Files of the source tokenizer and the target tokenizer. A shared tokenizer is returned twice."""
        shared, source, target = (self.path / name for name in TOKENIZERS)
        return (source, target) if source.exists() else (shared, shared)

    def tokenizer_models(self) -> tuple[bytes, ...]:
        """Reads the tokenizers."""
        return tuple(path.read_bytes() for path in dict.fromkeys(self.tokenizer_files))

    def write_tokenizers(self, models: tuple[bytes, ...]) -> None:
        """Writes the tokenizers."""
        names = TOKENIZERS[:1] if len(models) == 1 else TOKENIZERS[1:]
        for name, model in zip(names, models, strict=True):
            with atomic_write(self.path / name) as temporary:
                temporary.write_bytes(model)
        for name in set(TOKENIZERS) - set(names):
            (self.path / name).unlink(missing_ok=True)


def load_tokenizers(folder: TokenizerFolder, sha256: Sequence[str] | None = None) -> tuple[Tokenizer, Tokenizer]:
    """Loads the source tokenizer and the target tokenizer of a folder. A shared tokenizer is returned twice.

    Args:
        folder: the folder.
        sha256: expected hashes of the source tokenizer and the target tokenizer. Default: not checked.

    Raises:
        ValueError: see `Tokenizer`; also if a hash differs from `sha256`.
    """
    tokenizers = {path: Tokenizer(path) for path in folder.tokenizer_files}
    source, target = (tokenizers[path] for path in folder.tokenizer_files)
    if sha256 and list(sha256) != [source.sha256, target.sha256]:
        raise ModelDirectoryError(f"The tokenizers in {folder.path} do not belong to its model")
    return source, target
