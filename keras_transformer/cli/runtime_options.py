"""The options of the commands that translate: what runs the model, in which batches, by which search."""

import argparse
import dataclasses
from collections.abc import Collection

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt, PositiveInt


def add_runtime(parser: ArgumentParser, skip: Collection[str] = ()) -> None:
    """What runs the model, in which batches, on how many threads, and by which search.

    Options of the search that are not given are absent from the parsed options, since an export has a search of its
    own; see `search_options`.

    Args:
        parser: gets the options.
        skip: options of the search that the command does not support.
    """
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export.registry import RUNTIMES

    parser.add_argument("--runtime", choices=RUNTIMES, default="keras", help="what runs the model")
    add_batching(parser, "sentences", "source tokens")
    threads = "threads per batch; default: all cores, divided among the parallel batches"
    parser.add_argument("--num_threads", type=NonNegativeInt, default=0, help=threads)
    parallel = "batches translated at the same time; default: one per core, except with the keras runtime: 1"
    parser.add_argument("--parallel_batches", type=PositiveInt, help=parallel)
    defaults = {field.name: field.default for field in dataclasses.fields(BeamSearch)}
    parser.add_class_arguments(BeamSearch, skip={"token_scores", *skip})  # What comes out is text.
    for action in parser._actions:
        if action.dest in defaults:
            action.help = f"{action.help} (default: {defaults[action.dest]})"
            action.default = argparse.SUPPRESS


def search_options(options: Namespace) -> dict:
    """The options of the search that were given.

    Args:
        options: of a parser with `add_runtime`.

    Returns:
        Name -> value.
    """
    from keras_transformer.decoding import BeamSearch

    names = [field.name for field in dataclasses.fields(BeamSearch)]
    return {name: options[name] for name in names if name in options}


def add_batching(parser: ArgumentParser, items: str, tokens: str) -> None:
    """How much goes through the model at a time.

    Args:
        parser: gets the options.
        items: what `--batch_size` counts, for the help.
        tokens: what `--batch_tokens` counts, for the help.
    """
    from keras_transformer.text.batching import BATCH_SIZE, BATCH_TOKENS

    parser.add_argument("--batch_size", type=int, default=BATCH_SIZE, help=f"maximum {items} per batch")
    tokens = f"maximum {tokens} per batch, including padding"
    parser.add_argument("--batch_tokens", type=int, default=BATCH_TOKENS, help=tokens)


def add_encoding(parser: ArgumentParser) -> None:
    """How the text files are encoded.

    Args:
        parser: gets the option.
    """
    from keras_transformer.text.files import UTF_8

    parser.add_argument("--encoding", default=UTF_8, help="encoding of the text, such as cp1252 or utf-16")


def add_optional_file(parser: ArgumentParser, help: str) -> None:
    """A last positional argument, `file`, that can be left out and can stand behind options.

    Args:
        parser: gets the argument.
        help: its help.
    """
    # Before Python 3.12.7 argparse fills one of nargs="?" with nothing as soon as the argument before it is there.
    parser.add_argument("file", metavar="[file]", help=help).required = False


def make_translator(options: Namespace):
    """The `Translator` that the options of `add_runtime` ask for.

    Args:
        options: of a parser with `add_runtime`, with `directory`.

    Returns:
        A `Translator`.

    Raises:
        ValueError: if a search is asked for that the export does not have, or parallel batches with Keras.
    """
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export.load import load_translator
    from keras_transformer.export.threads import num_cores
    from keras_transformer.text.batching import BatchLimits

    BatchLimits(options.batch_size, options.batch_tokens)  # Before the model is loaded.
    search, parallel_batches = search_options(options), options.parallel_batches
    if options.runtime == "keras":
        if parallel_batches not in (None, 1):
            raise ValueError(f"`--parallel_batches` must be 1 with the keras runtime. Received: {parallel_batches}")
        return load_translator(options.directory, num_threads=options.num_threads, strategy=BeamSearch(**search))
    translator = load_translator(
        options.directory,
        options.runtime,
        num_threads=options.num_threads,
        parallel_batches=parallel_batches or num_cores(),
    )
    if options.runtime == "ctranslate2":  # The only export without a fixed search.
        translator.strategy = dataclasses.replace(translator.strategy, **{"n_best": 1, **search})
    else:
        _require_exported(translator.exported_search, options, search)
    return translator


def _require_exported(exported, options, search):
    """Refuses any other search than the export's. Any number of its hypotheses can be asked for."""
    from keras_transformer.export.origin import export_command

    given = {name: value for name, value in search.items() if name != "n_best"}
    if any(exported[name] != value for name, value in given.items()):
        raise ValueError(
            f"The search of the {options.runtime} export is fixed: {exported}. "
            f"Received: {', '.join(f'{name}={value}' for name, value in given.items())}. To change it, export again: "
            + " ".join([export_command(options.directory, options.runtime), *_changes(exported, given)])
        )


def _changes(exported, given):
    """The options of an export whose search differs from another's in what is given."""
    from keras_transformer.decoding import BeamSearch

    usual = vars(BeamSearch())
    exported = {name: value for name, value in exported.items() if name != "n_best"}
    return [f"--{name} {value}" for name, value in {**exported, **given}.items() if usual[name] != value]
