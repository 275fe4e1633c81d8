"""Quality of models on noisy text: `python -m benchmarks.noise --help`.

Each model translates a test set four times: unchanged, in upper case, without punctuation at the end, and with typing
errors. The table has the BLEU of each. The references lose their punctuation where the sources do. In upper case, BLEU
ignores case, because a model may answer in either case.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.decode import texts
from keras_transformer.evaluation.scores import BLEU_TOKENIZERS


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise", description=__doc__)
    parser.add_argument("directories", nargs="+", help="finished model directories")
    parser.add_argument("--source", required=True, help="text to translate, one sentence per line, plain or .gz")
    parser.add_argument("--reference", required=True, help="translation of --source")
    parser.add_argument("--typos", type=float, default=0.05, help="share of the words with a typing error")
    parser.add_argument("--runtime", default="keras", help="runtime that translates")
    parser.add_argument("--bleu_tokenize", default="13a", choices=BLEU_TOKENIZERS, help="tokenizer of BLEU")
    options = parser.parse_args()
    if len({Path(directory).name for directory in options.directories}) < len(options.directories):
        parser.error(f"the directories must have different names. Received: {', '.join(options.directories)}")
    if not 0 < options.typos <= 1:
        parser.error(f"--typos must be in (0, 1]. Received: {options.typos}")
    pairs = list(zip(*texts(options.source, options.reference), strict=True))
    variants = list(noisy(pairs, options.typos))
    translators = loaded(options.directories, options.runtime)
    rows = [[name, *measure(translator, variants, options.bleu_tokenize)] for name, translator in translators.items()]
    show(rows, variants)


def noisy(pairs: Sequence[tuple[str, str]], typos: float, seed: int = 1) -> Iterator[tuple[str, list, bool]]:
    """The name of each kind of noise, the changed pairs, and whether their score ignores case."""
    import numpy as np

    from keras_transformer.training.data.augmentation import with_typos, without_end

    generator = np.random.default_rng(seed)
    yield "unchanged", list(pairs), False
    yield "upper case", [(source.upper(), target) for source, target in pairs], True
    yield "no end punctuation", [without_end(pair) for pair in pairs], False
    yield f"{typos:.0%} typos", [(with_typos(source, typos, generator), target) for source, target in pairs], False


def loaded(directories, runtime) -> dict:
    """The translators of the models, by the names of their directories. Ends the program with status 2 if one fails."""
    from keras_transformer.translate.load import load_translator

    try:
        return {
            Path(directory).name: load_translator(directory, runtime, parallel_batches=None)
            for directory in directories
        }
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def measure(translator, variants, bleu_tokenize) -> list[float]:
    """The BLEU of a model for each kind of noise."""
    from keras_transformer.evaluation.scores import corpus_scores

    figures = []
    for _, pairs, ignores_case in variants:
        sources, references = zip(*pairs, strict=True)
        sides = [[found.text for found in translator.translate(sources)], references]
        if ignores_case:
            sides = [[line.lower() for line in lines] for lines in sides]
        figures.append(corpus_scores(*sides, bleu_tokenize).bleu)
    return figures


def show(rows, variants):
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"BLEU of {len(variants[0][1])} sentences")
    table.add_column("model", no_wrap=True)
    for name, *_ in variants:
        table.add_column(name, justify="right")
    for name, *figures in rows:
        table.add_row(name, *(f"{figure:.2f}" for figure in figures))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
