"""The options of the commands that translate: what runs the model, in which batches, by which search."""

import dataclasses
import re

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeInt


def add_runtime(parser: ArgumentParser) -> None:
    """What runs the model, in which batches, and by which search.

    Args:
        parser: gets the options.
    """
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export.load import RUNTIMES

    parser.add_argument("--runtime", choices=RUNTIMES, default="keras", help="what runs the model")
    add_batching(parser, "sentences translated", "source tokens translated")
    threads = "exports translate so many batches at a time, with a thread each; 0: one a core"
    parser.add_argument("--threads", type=NonNegativeInt, default=0, help=threads)
    parser.add_class_arguments(BeamSearch, skip={"token_scores"})  # What comes out is text.


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


def make_translator(options, arguments: list[str]):
    """The `Translator` that the options of `add_runtime` ask for.

    Args:
        options: parsed, with `directory`.
        arguments: as they were given, which tell what is asked for from what is left as it is.

    Returns:
        A `Translator`.

    Raises:
        ValueError: if a search is asked for that the export does not hold.
    """
    from keras_transformer.decoding import BeamSearch
    from keras_transformer.export.load import load_translator
    from keras_transformer.export.threads import num_cores

    search = {field.name: options[field.name] for field in dataclasses.fields(BeamSearch) if field.name in options}
    if options.runtime == "keras":
        return load_translator(options.directory, num_threads=options.threads, strategy=BeamSearch(**search))
    given = {name: search[name] for name in search if any(re.match(f"--{name}(=|$)", a) for a in arguments)}
    translator = load_translator(
        options.directory,
        options.runtime,
        num_threads=1 if options.threads else 0,
        parallel_batches=options.threads or num_cores(),
    )
    if options.runtime == "ctranslate2":  # The only export that holds no search.
        translator.strategy = dataclasses.replace(translator.strategy, **{"n_best": 1, **given})
    elif any(translator.exported_search[name] != value for name, value in given.items()):
        raise ValueError(
            f"The search of the {options.runtime} export is fixed: {translator.exported_search}. "
            f"Received: {', '.join(f'{name}={value}' for name, value in given.items())}"
        )
    return translator
