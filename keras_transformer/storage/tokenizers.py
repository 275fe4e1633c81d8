"""Folders with tokenizers: their files, and loading them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from keras_transformer.config import BOS_ID, EOS_ID, PAD_ID
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


def tokenizer_problems(model, vocab_sizes: Sequence[int]) -> Iterator[str]:
    """The problems of a model with tokenizers.

    Args:
        model: a `Transformer`, or its `TransformerConfig`.
        vocab_sizes: sizes of the tokenizers, `(shared,)` or `(source, target)`.
    """
    if model.source_vocabulary is None:
        yield "`model` must have token ids as source. Received: a model with `source`"
        return
    config = getattr(model, "config", model)
    wanted, found = (vocab_sizes[0], vocab_sizes[-1]), (config.source_vocabulary, config.vocab_size)
    if found != wanted:
        yield f"`model` must have the vocabularies of the tokenizers, {wanted} (source, target). Received: {found}"
    ids = config.pad_id, config.bos_id, config.eos_id
    if ids != (PAD_ID, BOS_ID, EOS_ID):
        yield (
            f"`pad_id`, `bos_id` and `eos_id` of `model` must be those of the tokenizers, {(PAD_ID, BOS_ID, EOS_ID)}. "
            f"Received: {ids}"
        )
