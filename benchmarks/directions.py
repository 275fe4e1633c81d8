"""Exact match of each direction of a model of number_words: `python -m benchmarks.directions --help`.

The model is that of `examples/four-languages.yaml`, or another that knows English, German, French and Spanish.
"""

import argparse
import itertools

from keras_transformer.evaluation import evaluate
from keras_transformer.training.config import DataConfig
from keras_transformer.training.datasets import load_corpus
from keras_transformer.translate import load_translator

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish"}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.directions", description=__doc__)
    parser.add_argument("directory", help="a finished model directory")
    parser.add_argument("--runtime", default="onnx", help="how to translate, such as keras or onnx_int8")
    parser.add_argument("--count", type=int, default=1000, help="numbers of the test split, at most 1,000")
    options = parser.parse_args()
    translator = load_translator(options.directory, options.runtime, parallel_batches=2)
    texts = spelled(options.count)
    show({source: exact_matches(translator, source, texts) for source in LANGUAGES}, options)


def spelled(count):
    """Language -> the numbers of the test split in words. All datasets have the same numbers in the same order."""
    texts = {}
    for name in ("en_de", "fr_es"):
        pairs = load_corpus(DataConfig(dataset=f"number_words/{name}", validation_split="test")).validation
        texts |= zip(name.split("_"), zip(*itertools.islice(pairs, count), strict=True), strict=True)
    return texts


def exact_matches(translator, source, texts):
    """Target language -> exact match."""
    return {
        target: evaluate(
            translator, texts[source], reference, source_language=source, target_language=target
        ).exact_match
        for target, reference in texts.items()
        if target != source
    }


def show(found, options):
    from rich.console import Console
    from rich.table import Table

    table = Table("from", *LANGUAGES.values(), title=f"exact match of {options.count:,} numbers, {options.runtime}")
    for source, by_target in found.items():
        cells = [f"{by_target[target]:.1%}" if target in by_target else "" for target in LANGUAGES]
        table.add_row(LANGUAGES[source], *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
