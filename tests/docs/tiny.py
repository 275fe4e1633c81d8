"""Replaces `keras-transformer` in the blocks of the documents. Runs and searches are tiny, and nothing is downloaded.

The tiny options follow those of the document. If an option is given twice, the last value counts.
"""

import json
import os
import sys

from keras_transformer.cli import main
from keras_transformer.training.data_config import DataConfig

#: Option of a document -> options that must not be given with it.
_FORBIDS = {"--prepared": ("max_length", "tokenizer."), "--init_from": ("model.", "tokenizer.")}
#: Options of `prepare`.
_OF_PREPARE = ("max_length", "tokenizer.")


def tiny_arguments(arguments):
    command, *given = arguments
    if command == "export":
        return [*arguments, "--extra_length=5"]
    if command not in ("train", "prepare"):
        return arguments
    options = json.loads(os.environ["TINY_OPTIONS"])
    names = {argument.partition("=")[0] for argument in given}
    if any(name.startswith("--augmentation") for name in names):
        options["tokenizer.vocab_size"] = 400  # For the capital letters, too.
    if "--recipe.max_steps" in names:
        del options["recipe.max_steps"]
    if os.environ.get("KERAS_BACKEND") == "jax":
        del options["recipe.xla"]
    if "--dataset" in names or any("wmt14" in argument for argument in given):
        options |= {"source": "train.en", "target": "train.de", "dataset": DataConfig.dataset, "reverse": "false"}
    forbidden = tuple(start for name, starts in _FORBIDS.items() if name in names for start in starts)
    return [
        *arguments,
        *(
            f"--{name}={value}"
            for name, value in options.items()
            if not name.startswith(forbidden) and (command == "train" or name.startswith(_OF_PREPARE))
        ),
    ]


if __name__ == "__main__":
    sys.exit(main(tiny_arguments(sys.argv[1:])))
