"""Options of the commands that translate: runtime, threads, batches and search."""

import argparse
import dataclasses
from collections.abc import Collection

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt, PositiveInt


def add_runtime(parser: ArgumentParser, skip: Collection[str] = ()) -> None:
    """Adds the options for runtime, batches, threads and search.

    Search options without a value on the command line are absent from the parsed options, because the default of an
    export is the search that it contains. The command does not support those in `skip`.
    """
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.translate.load import RUNTIMES

    parser.add_argument(
        "--runtime", choices=RUNTIMES, default="keras", help="runtime that translates: Keras, or the name of an export"
    )
    add_batching(parser, "sentences", "source tokens")
    threads = "threads per batch; 0: all cores, divided among the parallel batches"
    parser.add_argument("--num_threads", type=NonNegativeInt, default=0, help=threads)
    parallel = "batches translated at the same time; default: all cores, or 1 for Keras on a GPU or on JAX"
    parser.add_argument("--parallel_batches", type=PositiveInt, help=parallel)
    defaults = {field.name: field.default for field in dataclasses.fields(BeamSearch)}
    # The commands print only text and scores, and an option cannot be a function.
    parser.add_class_arguments(BeamSearch, skip={"token_scores", "logits_processor", *skip})
    for action in parser._actions:
        if action.dest in defaults:
            exported = "" if action.dest == "n_best" else ", or the value of the export"
            action.help = f"{action.help} (default: {defaults[action.dest]}{exported})"
            action.default = argparse.SUPPRESS


def add_sampling(parser: ArgumentParser) -> None:
    """Adds the options for sampling."""
    help = "sample translations instead of searching for the best, such as for back-translation; keras runtime only"
    parser.add_argument("--sampling", action="store_true", help=help)
    parser.add_argument(
        "--temperature", type=float, help="with sampling: divisor of the logits; below 1, fewer unlikely tokens"
    )
    parser.add_argument(
        "--top_k", type=NonNegativeInt, help="with sampling: number of likeliest tokens to sample from; 0: all"
    )
    top_p = "with sampling: sample from the smallest set of tokens with this total probability; 1: all"
    parser.add_argument("--top_p", type=float, help=top_p)
    seed = "with sampling: seed; the samples of a line depend on the seed and the line only"
    parser.add_argument("--seed", type=NonNegativeInt, help=seed)
    parser.set_defaults(sampling_defaults())


def sampling_defaults() -> dict[str, float]:
    """The defaults of the options of sampling: those of `Sampling`, and a fixed seed."""
    from keras_transformer.decoding import Sampling

    return {name: getattr(Sampling, name) for name in ("temperature", "top_k", "top_p")} | {"seed": 1}


def add_batching(parser: ArgumentParser, items: str, tokens: str) -> None:
    """Adds the options for the size of batches."""
    from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS

    parser.add_argument("--batch_size", type=int, default=BATCH_SIZE, help=f"maximum {items} per batch")
    tokens = f"maximum {tokens} per batch, including padding"
    parser.add_argument("--batch_tokens", type=int, default=BATCH_TOKENS, help=tokens)


def add_encoding(parser: ArgumentParser) -> None:
    """Adds the option for the encoding of text files."""
    from keras_transformer.text.files import UTF_8

    parser.add_argument("--encoding", default=UTF_8, help="encoding of the text files, such as cp1252 or utf-16")


def add_test_set(parser: ArgumentParser) -> None:
    """Adds the options for a test set and its scores."""
    from keras_transformer.evaluation.scores import BLEU_TOKENIZE

    parser.add_argument("--source", required=True, help="text to translate, plain or .gz")
    parser.add_argument("--reference", required=True, help="reference translations, one per line of `--source`")
    add_encoding(parser)
    tokenizers = "tokenizer of sacreBLEU: 13a, none, intl, zh or char"
    parser.add_argument("--bleu_tokenize", default=BLEU_TOKENIZE, help=tokenizers)


def add_languages(parser: ArgumentParser, more: str = "") -> None:
    """Adds the options for the languages of the text."""
    default = "default: the default language of the model, if it has one"
    source = f"code of the source language, such as en, for a model with several languages{more}; {default}"
    parser.add_argument("--source_language", help=source)
    parser.add_argument(
        "--target_language",
        help=f"code of the target language, such as de, for a model with several languages; {default}",
    )


def add_optional_file(parser: ArgumentParser, help: str) -> None:
    """Adds an optional positional argument `file`, the last one. Options may precede it."""
    # Not nargs="?": before Python 3.12.7, argparse sets such an argument to `None` if an option precedes it.
    parser.add_argument("file", metavar="[file]", help=help).required = False
