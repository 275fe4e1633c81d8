"""The options of the commands that translate: what runs the model, in which batches, by which search."""

import dataclasses
from collections.abc import Collection

from jsonargparse import ArgumentParser, Namespace
from jsonargparse.typing import NonNegativeInt


def add_runtime(parser: ArgumentParser, skip: Collection[str] = ()) -> None:
    """What runs the model, in which batches, and by which search.

    Args:
        parser: gets the options.
        skip: options of the search that the command has no use for.
    """
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export.load import RUNTIMES

    parser.add_argument("--runtime", choices=RUNTIMES, default="keras", help="what runs the model")
    add_batching(parser, "sentences translated", "source tokens translated")
    threads = "exports translate so many batches at a time, with a thread each; 0: one a core"
    parser.add_argument("--threads", type=NonNegativeInt, default=0, help=threads)
    parser.add_class_arguments(BeamSearch, skip={"token_scores", *skip})  # What comes out is text.


def add_batching(parser: ArgumentParser, items: str, tokens: str) -> None:
    """How much goes through the model at a time.

    Args:
        parser: gets the options.
        items: what is counted by `--batch_size`, for the help.
        tokens: what is counted by `--batch_tokens`, for the help.
    """
    from keras_transformer.batching import BATCH_SIZE, BATCH_TOKENS

    parser.add_argument("--batch_size", type=int, default=BATCH_SIZE, help=f"{items} at a time, at most")
    tokens = f"{tokens} at a time, at most, padding counted"
    parser.add_argument("--batch_tokens", type=int, default=BATCH_TOKENS, help=tokens)


def add_encoding(parser: ArgumentParser) -> None:
    """How the text files are encoded.

    Args:
        parser: gets the option.
    """
    from keras_transformer.text_files import UTF_8

    parser.add_argument("--encoding", default=UTF_8, help="encoding of the text, such as cp1252 or utf-16")


def add_optional_file(parser: ArgumentParser, help: str) -> None:
    """A last positional argument, `file`, that can be left out and can stand behind options.

    Args:
        parser: gets the argument.
        help: its help.
    """
    # Before Python 3.12.7 argparse fills one of nargs="?" with nothing as soon as the argument before it is there.
    parser.add_argument("file", metavar="[file]", help=help).required = False


def parse(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    """Parses a command line with the options of `add_runtime`.

    Args:
        parser: the command's.
        arguments: as they were given.

    Returns:
        The options, with `search`: what was given of the search, which an export may not hold.
    """
    from keras_transformer.decoding import BeamSearch

    options, given = parser.parse_args(arguments), parser.parse_args(arguments, defaults=False)
    names = [field.name for field in dataclasses.fields(BeamSearch)]
    options.search = {name: given[name] for name in names if name in given}
    return options


def make_translator(options: Namespace):
    """The `Translator` that the options of `add_runtime` ask for.

    Args:
        options: of `parse`, with `directory`.

    Returns:
        A `Translator`.

    Raises:
        ValueError: if a search is asked for that the export does not hold.
    """
    from keras_transformer.batching import check_batching
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export.load import load_translator
    from keras_transformer.export.threads import num_cores

    check_batching(options.batch_size, options.batch_tokens)
    if options.runtime == "keras":
        return load_translator(options.directory, num_threads=options.threads, strategy=BeamSearch(**options.search))
    translator = load_translator(
        options.directory,
        options.runtime,
        num_threads=1 if options.threads else 0,
        parallel_batches=options.threads or num_cores(),
    )
    if options.runtime == "ctranslate2":  # The only export that holds no search.
        translator.strategy = dataclasses.replace(translator.strategy, **{"n_best": 1, **options.search})
    else:
        _require_exported(translator.exported_search, options)
    return translator


def _require_exported(exported, options):
    """Refuses another search than an export's; of its hypotheses any number can be asked for, see `Translator`."""
    from keras_transformer.export.origin import export_command

    given = {name: value for name, value in options.search.items() if name != "n_best"}
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
