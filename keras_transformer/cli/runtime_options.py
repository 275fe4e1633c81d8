"""Options of the commands that translate: runtime, threads, batches and search."""

import argparse
import dataclasses
from collections.abc import Collection
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveInt

_SAMPLING_DEFAULTS = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 1}


def add_runtime(parser: ArgumentParser, skip: Collection[str] = ()) -> None:
    """Adds the options for runtime, batches, threads and search.

    Search options without a value on the command line are absent from the parsed options, because the default of an
    export is the search that it contains; see `search_options`.

    Args:
        parser: the parser.
        skip: search options that the command does not support.
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
    parser.add_class_arguments(BeamSearch, skip={"token_scores", *skip})  # The commands print only text and scores.
    for action in parser._actions:
        if action.dest in defaults:
            exported = "" if action.dest == "n_best" else ", or the value of the export"
            action.help = f"{action.help} (default: {defaults[action.dest]}{exported})"
            action.default = argparse.SUPPRESS


def add_sampling(parser: ArgumentParser) -> None:
    """Adds the options for sampling.

    Args:
        parser: the parser.
    """
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
    parser.set_defaults(_SAMPLING_DEFAULTS)


def directories(options: Namespace) -> list[str]:
    """The model directories of a command: one, or several separated by commas.

    Args:
        options: parsed options with an argument `directory`.
    """
    return [options.directory] if Path(options.directory).exists() else options.directory.split(",")


def sampling_options(options: Namespace) -> dict:
    """Returns the options of `add_sampling`; empty without `--sampling`.

    Args:
        options: parsed options.

    Raises:
        ValueError: if an option of beam search or of sampling is given without effect.
    """
    names = ("temperature", "top_k", "top_p", "seed")
    given = [name for name in names if name in options and options[name] != _SAMPLING_DEFAULTS[name]]
    if not options.get("sampling"):
        if given:
            raise ValueError(f"{', '.join(f'`--{name}`' for name in given)} must be given with `--sampling`")
        return {}
    useless = search_options(options).keys() & {"beam_size", "length_penalty", "length_penalty_kind"}
    if useless:
        raise ValueError(f"{', '.join(f'`--{name}`' for name in sorted(useless))} must not be given with `--sampling`")
    return {name: options[name] for name in names}


def search_options(options: Namespace) -> dict:
    """Returns the search options on the command line.

    Args:
        options: parsed options of a parser with `add_runtime`.

    Returns:
        Name -> value.
    """
    from keras_transformer.decoding import BeamSearch

    names = [field.name for field in dataclasses.fields(BeamSearch)]
    return {name: options[name] for name in names if name in options}


def add_batching(parser: ArgumentParser, items: str, tokens: str) -> None:
    """Adds the options for the size of batches.

    Args:
        parser: the parser.
        items: name of the items that `--batch_size` counts, for the help.
        tokens: name of the tokens that `--batch_tokens` counts, for the help.
    """
    from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS

    parser.add_argument("--batch_size", type=int, default=BATCH_SIZE, help=f"maximum {items} per batch")
    tokens = f"maximum {tokens} per batch, including padding"
    parser.add_argument("--batch_tokens", type=int, default=BATCH_TOKENS, help=tokens)


def add_encoding(parser: ArgumentParser) -> None:
    """Adds the option for the encoding of text files.

    Args:
        parser: the parser.
    """
    from keras_transformer.text.files import UTF_8

    parser.add_argument("--encoding", default=UTF_8, help="encoding of the text files, such as cp1252 or utf-16")


def add_optional_file(parser: ArgumentParser, help: str) -> None:
    """Adds an optional positional argument `file`, the last one. Options may precede it.

    Args:
        parser: the parser.
        help: help of the argument.
    """
    # Not nargs="?": before Python 3.12.7, argparse sets such an argument to `None` if an option precedes it.
    parser.add_argument("file", metavar="[file]", help=help).required = False


def make_translator(options: Namespace):
    """Makes the `Translator` for the options of `add_runtime`.

    Args:
        options: parsed options of a parser with `add_runtime` and an argument `directory`.

    Returns:
        A `Translator`.

    Raises:
        ValueError: if the export does not support the search options, or a number of threads or batches is wrong; see
            `load_translator`.
    """
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export.registry import FORMATS
    from keras_transformer.translate.batching import BatchLimits
    from keras_transformer.translate.load import load_translator
    from keras_transformer.translate.protection import Protection

    BatchLimits(options.batch_size, options.batch_tokens)  # Checks them before the model is loaded.
    parallel = {"num_threads": options.num_threads, "parallel_batches": options.parallel_batches}
    if "protect" in options:
        Protection(options.protect)
        parallel["protect"] = options.protect
    sampling_options(options)
    search = search_options(options)
    if options.runtime == "keras":
        strategy = _sampling(options) if options.get("sampling") else BeamSearch(**search)
        paths = directories(options)
        directory = paths[0] if len(paths) == 1 else paths
        return load_translator(directory, options.runtime, strategy=strategy, **parallel)
    if options.get("sampling") or len(directories(options)) > 1:
        raise ValueError(
            "`--sampling` and several model directories require `--runtime keras`. "
            f"Received: --runtime {options.runtime}"
        )
    translator = load_translator(options.directory, options.runtime, **parallel)
    if FORMATS[options.runtime].has_fixed_search:
        _require_exported(translator.exported_search, options, search)
    else:
        translator.strategy = dataclasses.replace(translator.strategy, **{"n_best": 1, **search})
    return translator


def _sampling(options):
    from keras_transformer.decoding import Sampling

    search = {name: value for name, value in search_options(options).items() if name != "n_best"}
    return Sampling(**search, **sampling_options(options), n_samples=search_options(options).get("n_best", 1))


def _require_exported(exported, options, search):
    """Checks that the search options equal those of the export, except `n_best`, which the translator checks."""
    from keras_transformer.export.registry import FORMATS
    from keras_transformer.storage.origin import export_command

    given = {name: value for name, value in search.items() if name != "n_best"}
    if any(exported.get(name) != value for name, value in given.items()):
        format = FORMATS[options.runtime]
        raise ValueError(
            f"The search of the {options.runtime} export is fixed: {exported}. "
            f"Received: {', '.join(f'{name}={value}' for name, value in given.items())}. To change it, export again: "
            + " ".join([export_command(options.directory, format.format, format.quantize), *_changes(exported, given)])
        )


def _changes(exported, given):
    """Returns the command line options to export again with the given search options."""
    from keras_transformer.decoding import BeamSearch

    usual = vars(BeamSearch())
    exported = {name: value for name, value in exported.items() if name != "n_best"}
    return [f"--{name} {value}" for name, value in {**exported, **given}.items() if usual[name] != value]
