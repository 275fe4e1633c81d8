"""The commands that make a model, or a corpus for one. Each parses its options, then imports the implementation."""

import inspect
import sys

from jsonargparse.typing import PositiveInt

from keras_transformer.cli.options import make_config, make_parser
from keras_transformer.cli.runtime_options import add_encoding

#: The options that `train --help` shows.
_ESSENTIALS = (
    *("output", "overwrite", "config", "dataset", "source", "target", "validation_source", "validation_target"),
    *("source_language", "target_language"),
    *("prepared", "init_from", "devices", "tokens_per_batch", "tokenizer.vocab_size", "model.preset"),
    *("recipe.epochs", "recipe.max_steps", "recipe.max_time", "recipe.precision"),
)


def train(arguments: list[str]) -> None:
    """Train a model on a dataset, text files or a prepared corpus."""
    from keras_transformer.training.config import TrainConfig

    overwrite = "replace the model or the run in `--output`"
    config = make_config(train, TrainConfig, arguments, overwrite, essentials=_ESSENTIALS)

    from keras_transformer.training.start import train as run

    run(config)


def prepare(arguments: list[str]) -> None:
    """Tokenize a corpus once, for any number of runs of `train --prepared`."""
    from keras_transformer.training.data_config import PrepareConfig

    config = make_config(prepare, PrepareConfig, arguments, "replace the tokens in `--output`", loads_models=False)

    from keras_transformer.training.data.prepare import prepare as run

    print(f"Wrote the tokens to {run(config).path}", file=sys.stderr)


def distill(arguments: list[str]) -> None:
    """Translate text with a teacher, as the corpus of a student for `train --prepared`."""
    from keras_transformer.apps.distillation.config import DistillConfig

    overwrite = "replace the result in `--output`; translations of the same text by the same teacher are kept"
    config = make_config(distill, DistillConfig, arguments, overwrite)

    from keras_transformer.apps.distillation.pipeline import distill as run

    print(f"Wrote the tokens to {run(config).path}", file=sys.stderr)


def average(arguments: list[str]) -> None:
    """Replace the model of a finished run with the average of its last checkpoints."""
    parser = make_parser(average, loads_models=True)
    parser.add_argument("directory", help="model directory that `train` has written")
    parser.add_argument("--last", type=int, help="number of checkpoints to average; default: all that the run has kept")
    options = parser.parse_args(arguments)

    from keras_transformer.storage.model_directory import ModelDirectory

    directory = ModelDirectory(options.directory)
    directory.require_finished()

    from keras_transformer.training.averaging import average as run

    steps = run(options.directory, options.last)
    print(
        f"Wrote the average of the checkpoints at steps {', '.join(map(str, steps))} to {directory.model_file}",
        file=sys.stderr,
    )
    if directory.export.exists():
        print(f"The exports in {directory.export} contain the previous weights; export again", file=sys.stderr)


def shortlist(arguments: list[str]) -> None:
    """Write the likely translations of each source subword to the model directory, for `export --shortlist`."""
    from keras_transformer.apps.shortlisting import learn_shortlist

    parser = make_parser(shortlist)
    parser.add_argument("directory", help="model directory that `train` or `import` has written")
    parser.add_argument("--source", required=True, help="source text, plain or .gz, one sentence per line")
    parser.add_argument("--target", required=True, help="its translation, preferably by the model itself")
    add_encoding(parser)
    parser.add_argument("--width", type=PositiveInt, help="maximum translations per source subword")
    frequent = "number of the most frequent target subwords, which are always considered; below 128, 128 are used"
    parser.add_argument("--num_frequent", type=PositiveInt, help=frequent)
    parser.add_argument("--max_pairs", type=PositiveInt, help="maximum pairs to learn from")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing shortlist")
    names = ("width", "num_frequent", "max_pairs", "overwrite")
    parameters = inspect.signature(learn_shortlist).parameters
    parser.set_defaults({name: parameters[name].default for name in names})
    options = parser.parse_args(arguments)

    from keras_transformer.training.datasets import read_pairs

    pairs = read_pairs(options.source, options.target, options.encoding)
    learn_shortlist(options.directory, pairs, **{name: options[name] for name in names})
