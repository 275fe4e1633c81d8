"""Tokenization of a corpus: trains the tokenizer on a sample and writes token ids chunk by chunk."""

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from keras_transformer.checks import needs
from keras_transformer.storage.languages import Languages, languages_of
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.progress import progress_bar
from keras_transformer.storage.rows import TokenSide
from keras_transformer.storage.source_text import ENTRY, SourceText
from keras_transformer.storage.token_directory import (
    SIDES,
    ArrayFile,
    Prefixes,
    Statistics,
    TokenDirectory,
    write_lines,
)
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.data.filtering import filter_pairs, is_surely_removed
from keras_transformer.training.data.tokenizer import train_tokenizers
from keras_transformer.training.data_config import AugmentationConfig, DataConfig, PrepareConfig, recorded
from keras_transformer.training.datasets import Corpus, Pairs, chained, load_corpus
from keras_transformer.translate.batching import chunks_of

#: Pairs that are tokenized at a time.
_CHUNK = 20_000


def prepare(config: PrepareConfig, corpus: Corpus | None = None) -> TokenDirectory:
    """Tokenizes a corpus into a folder that any number of runs can train on.

    Args:
        config: the corpus, the tokenizer and the output.
        corpus: the text. Default: that of `config`.

    Returns:
        The folder.

    Raises:
        ValueError: if the data, the folder or an option is invalid. No files are left behind.
    """
    directory = TokenDirectory(config.output)
    directory.require_free(config.overwrite)
    models = finished_tokenizers(config.init_from) if config.init_from else None
    # Before the work, which may take hours.
    if models:
        _tag_ids(config, Tokenizer(models[0]))
    if config.clean:
        check_cleaning(config, is_held_out=corpus is None and config.holds_out)
    corpus = corpus or load_corpus(config)
    corpus = dataclasses.replace(corpus, languages=_languages(corpus, config))
    if corpus.directions and (config.cleaning.languages or config.cleaning.model):
        raise ValueError(
            "`cleaning.languages` and `cleaning.model` must not be given for corpora in several pairs of languages. "
            f"Received: {', '.join(sorted({'-'.join(pair) for pair in corpus.directions.values()}))}"
        )
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(directory.atomic_write())
        if config.clean:
            # Its imports are slow, and optional.
            from keras_transformer.training.cleaning.clean import cleaned

            corpus, counts = stack.enter_context(cleaned(corpus, config.cleaning, temporary.path))
            for split, count in counts.items():
                print(f"cleaning of {split}: {count}", file=sys.stderr)
        models = models or train_own_tokenizers(corpus, config)
        write_tokens(temporary, corpus, models, config, known_languages(config.init_from))
        for split in temporary.splits:
            print(f"{split}: {temporary.statistics(split)}", file=sys.stderr)
    return directory


def check_cleaning(config: PrepareConfig, is_held_out: bool) -> None:
    """Checks the options of cleaning, before work that may take hours."""
    path = config.cleaning.rejected
    if path and Path(path).resolve() in [Path(file).resolve() for file in config.files]:
        raise ValueError(f"`cleaning.rejected` must not be a file of the corpus. Received: rejected={path}")
    if path and Path(path).exists() and not (config.overwrite and Path(path).is_file()):
        raise ValueError(f"`cleaning.rejected` must name a new file, or use --overwrite. Received: rejected={path}")
    if config.cleaning.model and config.cleaning.min_score is None and is_held_out:
        raise ValueError(
            "`cleaning.min_score` must be given if the validation text is held out from the training text. Give it, "
            f"or other validation text. Received: min_score=None, model={config.cleaning.model!r}"
        )
    for model in filter(None, (config.cleaning.model, config.cleaning.reverse_model)):
        ModelDirectory(model).require_finished()
    if config.cleaning.repair:
        with needs("clean"):
            import ftfy  # noqa: F401


def _languages(corpus, config):
    return config.source_language or corpus.languages[0], config.target_language or corpus.languages[1]


def finished_tokenizers(path: str) -> tuple[bytes, ...]:
    """The tokenizers of a directory, which must contain a finished model."""
    directory = ModelDirectory(path)
    directory.require_finished()
    return directory.tokenizer_models()


def train_own_tokenizers(
    corpus: Corpus, config: PrepareConfig, augmentation: AugmentationConfig | None = None
) -> tuple[bytes, ...]:
    """Trains the tokenizers of a corpus, without the pairs that the filter removes with any tokenizer."""
    pairs = (pair for pair in corpus.train if not is_surely_removed(*pair, config))
    first = next(pairs, None)
    # If nothing is left, `write_tokens` raises an error with the counts.
    pairs = corpus.train if first is None else itertools.chain([first], pairs)
    tags = {corpus.tag for corpus in (config.corpora or {}).values() if corpus.tag}
    tags |= {_language_token(target) for _, target in corpus.directions.values()}
    return train_tokenizers(pairs, config.tokenizer, sorted(tags), augmentation)


def known_languages(init_from: str | None) -> Languages | None:
    """The languages of the model to fine-tune, if there is one."""
    return languages_of(init_from) if init_from else None


def _language_token(language: str) -> str:
    """The piece of the token of a target language."""
    return f"<2{language}>"


def write_tokens(
    directory: TokenDirectory,
    corpus: Corpus,
    models: tuple[bytes, ...],
    config: DataConfig,
    known: Languages | None = None,
) -> None:
    """Writes a corpus as token ids, without the pairs that the filter removes.

    Args:
        directory: an empty folder.
        corpus: the text.
        models: serialized SentencePiece models, `(shared,)` or `(source, target)`.
        config: the options. The fields of `DataConfig` are recorded. Languages that it does not name are those of the
            corpus.
        known: languages of the model to fine-tune. Default: there is none.

    Raises:
        ValueError: if the filter removes all pairs, a model is not a SentencePiece model, or a language is unknown.
    """
    tokenizers = [Tokenizer(model) for model in models]
    languages = _token_languages(corpus, config, tokenizers[0], known)
    prefixes = _prefixes(corpus, config, tokenizers[0], languages)
    validation = corpus.validation_parts or [(corpus.validation, _languages(corpus, config))]
    validated = [(pairs, languages.direction(*codes).prefixes) for pairs, codes in validation]
    directory.write_tokenizers(models)
    splits = {split: [(pairs, prefixes[split])] for split, pairs in corpus.splits.items()} | {"validation": validated}
    found = {split: _write_split(directory, split, parts, tokenizers, config) for split, parts in splits.items()}
    empty = [f"{split}: {statistics}" for split, (statistics, _) in found.items() if not statistics.kept]
    if empty:
        raise ValueError(f"Each text must have pairs that can be used. Received: {'; '.join(empty)}")
    source_text = sum((found[split][1] for split in corpus.splits), SourceText())
    directory.write_record(
        {
            "data": data_options(config),
            **languages.to_record(),
            **({"validation_languages": list(validation[0][1])} if len(validation) == 1 else {}),
            "vocab_sizes": [tokenizer.vocab_size for tokenizer in tokenizers],
            "tokenizers_sha256": [tokenizer.sha256 for tokenizer in tokenizers],
            "statistics": {split: dataclasses.asdict(statistics) for split, (statistics, _) in found.items()},
            ENTRY: source_text.to_record(),
            **({"prefixes": given} if (given := {split: ids for split, ids in prefixes.items() if any(ids)}) else {}),
        }
    )


def _token_languages(corpus, config, tokenizer, known) -> Languages:
    """The languages of a model that is trained on a corpus."""
    source, target = _languages(corpus, config)
    if known is not None and known.are_several:
        return known.with_default(source, target)
    if not corpus.directions:
        return Languages(source, target)
    sources, targets = (dict.fromkeys(codes) for codes in zip(*corpus.directions.values(), strict=True))
    unknown = [code for code in targets if _language_token(code) not in tokenizer.pieces]
    if unknown:
        raise ValueError(
            f"The tokenizer must contain {', '.join(map(_language_token, unknown))} for corpora in several languages. "
            "A tokenizer trained with the corpora contains them"
        )
    tokens = {code: tokenizer.pieces.index(_language_token(code)) for code in targets}
    return Languages(source_tokens=sources, target_tokens=tokens).with_default(source, target)


def _prefixes(corpus, config, tokenizer, languages) -> dict[str, Prefixes]:
    """The ids that start the sources and the targets of each split to train on."""
    tags, found = _tag_ids(config, tokenizer), {}
    for split in corpus.splits:
        codes = corpus.directions.get(split.removeprefix("train."), _languages(corpus, config))
        source, target = languages.direction(*codes).prefixes
        found[split] = (*source, *([tags[split]] if split in tags else [])), target
    return found


def _tag_ids(config, tokenizer) -> dict[str, int]:
    """The id of the tag of each split that has one."""
    ids = {}
    for name, corpus in (config.corpora or {}).items():
        if corpus.tag:
            if corpus.tag not in tokenizer.pieces:
                raise ValueError(
                    f"The tokenizer must contain the tag {corpus.tag} of the corpus {name}. A tokenizer trained "
                    "with the corpora contains their tags"
                )
            ids[f"train.{name}"] = tokenizer.pieces.index(corpus.tag)
    return ids


def data_options(config: DataConfig) -> dict:
    """The options of a `DataConfig`, which determine the pairs, as recorded."""
    options = {field.name: getattr(config, field.name) for field in dataclasses.fields(DataConfig)}
    if config.corpora:
        options["corpora"] = {name: dataclasses.asdict(corpus) for name, corpus in config.corpora.items()}
    return recorded(options)


def _chunks(parts: Sequence[tuple[Pairs, Prefixes]]) -> Iterator[tuple[list[tuple[str, str]], Prefixes]]:
    with progress_bar(total=chained([pairs for pairs, _ in parts]).count, desc="tokenizing", unit=" pairs") as bar:
        for pairs, prefixes in parts:
            for chunk in chunks_of(pairs, _CHUNK):
                yield chunk, prefixes
                bar.update(len(chunk))


def _write_split(directory, split, parts, tokenizers, config) -> tuple[Statistics, SourceText]:
    """Writes the token ids of a split, and the text of the validation split. `parts`: pairs with their prefixes."""
    found, source_text = Statistics(), SourceText()
    with contextlib.ExitStack() as stack:
        kept = SIDES if split == "validation" else ()
        texts = [stack.enter_context(open(directory.text_file(side), "wb")) for side in kept]
        arrays = [
            (
                stack.enter_context(ArrayFile(directory.ids_file(split, side), _id_type(tokenizer))),
                stack.enter_context(ArrayFile(directory.lengths_file(split, side), "int32")),
            )
            for side, tokenizer in zip(SIDES, (tokenizers[0], tokenizers[-1]), strict=True)
        ]
        for chunk, prefixes in _chunks(parts):
            lines = list(zip(*chunk, strict=True))
            if split == "validation":
                for file, side in zip(texts, lines, strict=True):
                    write_lines(file, side)
            source_text += SourceText.of_pairs(*lines)
            ids = [t.encode(side) for t, side in zip((tokenizers[0], tokenizers[-1]), lines, strict=True)]
            sides = [
                TokenSide.of_lists([[*prefix, *row] for row in side] if prefix else side)
                for prefix, side in zip(prefixes, ids, strict=True)
            ]
            sizes = len(prefixes[0]), len(prefixes[1])
            is_used, statistics = filter_pairs(sides[0], sides[1], config, sizes)
            found += statistics
            for side, (ids_file, lengths_file) in zip(sides, arrays, strict=True):
                ids_file.append(side.ids[np.repeat(is_used, side.lengths)])
                lengths_file.append(side.lengths[is_used])
    return found, source_text


def _id_type(tokenizer):
    return "uint16" if tokenizer.vocab_size <= 1 << 16 else "int32"
