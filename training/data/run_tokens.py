"""The tokens of a run."""

import contextlib
from collections.abc import Iterator

from keras_transformer.storage.atomic_files import delete
from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data.prepare import (
    data_options,
    finished_tokenizers,
    known_languages,
    train_own_tokenizers,
    write_tokens,
)
from keras_transformer.training.datasets import load_corpus


@contextlib.contextmanager
def run_tokens(config: TrainConfig, directory: ModelDirectory, resuming: bool) -> Iterator[TokenDirectory]:
    """The tokens of the run: `prepared`, those in the directory, or new ones, which are kept if the block succeeds."""
    if config.prepared:
        tokens = TokenDirectory(config.prepared)
        config.require_room(tokens.record()["data"]["max_length"])
        yield tokens
        return
    tokens = TokenDirectory(directory.tokens)
    if resuming and _are_valid(tokens, config):
        yield tokens
        return
    corpus = load_corpus(config)
    models = None
    if resuming and not directory.replaces_model:
        models = directory.tokenizer_models()
    elif config.init_from:
        models = finished_tokenizers(config.init_from)
    if tokens.path.is_symlink():
        delete(tokens.path)
    with tokens.atomic_write() as temporary:
        models = models or train_own_tokenizers(corpus, config, config.augmentation)
        write_tokens(temporary, corpus, models, config, known_languages(config.init_from))
        yield temporary


def _are_valid(tokens, config):
    """Whether a resumed run can reuse its tokens. Damaged tokens are written again."""
    try:
        for split in tokens.splits:
            tokens.sides(split)
        languages = Languages.from_record(tokens.record())
        is_same = not languages.are_several or languages == languages.with_default(
            config.source_language, config.target_language
        )
        return is_same and tokens.record()["data"] == data_options(config)
    except ValueError:
        return False
