"""The commands: each parses its options, imports what does the work, and delegates."""

import sys
from collections.abc import Callable

from keras_transformer.cli.options import make_config, make_parser
from keras_transformer.cli.runtime_options import add_batching, add_encoding, add_optional_file, add_runtime

#: The options that `train --help` shows.
_ESSENTIALS = (
    *("output", "overwrite", "config", "dataset", "source", "target", "validation_source", "validation_target"),
    *("tokens", "init_from", "devices", "tokens_per_batch", "tokenizer.vocab_size", "model.preset"),
    *("recipe.epochs", "recipe.max_steps", "recipe.max_time", "recipe.precision"),
)


def train(arguments: list[str]) -> int:
    """Train a model on a dataset, on text files or on prepared tokens."""
    from keras_transformer.training.config import TrainConfig

    overwrite = "replace the model or the run that lies there"
    config = make_config(train, TrainConfig, arguments, overwrite, essentials=_ESSENTIALS)

    from keras_transformer.training.start import train as run
    from keras_transformer.training.stopping import Diverged, Interrupted, WorkerLost

    try:
        run(config)
    except (Diverged, Interrupted, WorkerLost) as error:
        print(f"keras-transformer train: {error}", file=sys.stderr)
        return error.status
    return 0


def prepare(arguments: list[str]) -> int:
    """Make a corpus into tokens once, for runs of `train --prepared`."""
    from keras_transformer.training.data_config import PrepareConfig

    config = make_config(prepare, PrepareConfig, arguments, "replace the tokens that lie there")

    from keras_transformer.training.data.prepare import prepare as run

    print(f"The tokens are in {run(config).path}", file=sys.stderr)
    return 0


def average(arguments: list[str]) -> int:
    """Make a finished run's model anew, of the mean weights of its last checkpoints."""
    parser = make_parser(average)
    parser.add_argument("directory", help="a finished model directory")
    parser.add_argument("--last", type=int, help="how many checkpoints; default: all that are kept")
    options = parser.parse_args(arguments)

    from keras_transformer.model_directory import ModelDirectory

    directory = ModelDirectory(options.directory)
    directory.require_finished()

    from keras_transformer.training.averaging import average as run

    steps = run(directory, options.last)
    print(f"{directory.model_file} is the mean of steps {', '.join(map(str, steps))}", file=sys.stderr)
    if directory.export.exists():
        print(f"{directory.export} is of the weights before; export again", file=sys.stderr)
    return 0


def translate(arguments: list[str]) -> int:
    """Translate standard input or a file, one sentence a line, to standard output or a file."""
    parser = make_parser(translate)
    parser.add_argument("directory", help="a finished model directory")
    add_optional_file(parser, "text to translate, plain or .gz; default: standard input")
    add_encoding(parser)
    parser.add_argument("--output", help="the file to write, in UTF-8, which appears when it is whole")
    parser.add_argument("--resume", action="store_true", help="go on with an `--output` that was interrupted")
    line_by_line = "translate each line as soon as it is read, as on a terminal; slower"
    parser.add_argument("--line_by_line", action="store_true", help=line_by_line)
    parser.add_argument("--json", action="store_true", help="an object a line: source, translations (text, score)")
    add_runtime(parser)
    parser.epilog = (
        "With `--n_best` above 1 each hypothesis is a line; tab separated: number of its source line, from 1, \
its score, its text."
    )
    options = parser.parse_args(arguments)

    from keras_transformer.cli.translate_files import translate as run

    run(options)
    return 0


def evaluate(arguments: list[str]) -> int:
    """Translate a test set and print sacreBLEU, chrF and exact match."""
    parser = make_parser(evaluate)
    parser.add_argument("directory", help="a finished model directory")
    parser.add_argument("--source", required=True, help="text to translate, plain or .gz")
    parser.add_argument("--reference", required=True, help="its translation, as many lines")
    add_encoding(parser)
    parser.add_argument("--bleu_tokenize", default="13a", help="sacreBLEU's tokenizer: 13a, none, intl, zh or char")
    add_runtime(parser, skip={"n_best"})
    options = parser.parse_args(arguments)

    from keras_transformer.cli.translate_files import evaluate as run

    run(options)
    return 0


def score(arguments: list[str]) -> int:
    """Score given translations; tab separated: log probability, subwords with the end, the first over the second."""
    parser = make_parser(score)
    parser.add_argument("directory", help="a finished model directory")
    parser.add_argument("--source", required=True, help="text, plain or .gz")
    parser.add_argument("--target", required=True, help="its translation, as many lines")
    add_encoding(parser)
    add_batching(parser, "pairs", "tokens of the longer side")
    options = parser.parse_args(arguments)

    from keras_transformer.cli.translate_files import score as run

    run(options)
    return 0


def plot_attention(arguments: list[str]) -> int:
    """Draw where each head of a layer looks as a sentence is translated."""
    parser = make_parser(plot_attention)
    parser.add_argument("directory", help="a finished model directory")
    parser.add_argument("sentence", help="text")
    parser.add_argument("--output", required=True, help="the picture; .png, .pdf, .svg")
    parser.add_argument("--target", help="its translation; default: the model's")
    parser.add_argument("--layer", type=int, help="of the decoder, 1 the first; default: the last")
    options = parser.parse_args(arguments)

    from keras_transformer.cli.attention_plot import draw_attention as run

    print(run(options.directory, options.sentence, options.output, options.target, options.layer))
    return 0


def export(arguments: list[str]) -> int:
    """Export a model to SavedModel, ONNX, CTranslate2 and Hugging Face, verified against Keras."""
    from keras_transformer.export.config import ExportConfig
    from keras_transformer.model_directory import ModelDirectory
    from keras_transformer.text.files import readable

    parser = make_parser(export)
    parser.add_argument("directory", help="a finished model directory")
    parser.add_class_arguments(ExportConfig)
    options = parser.parse_args(arguments)
    directory = options.pop("directory")
    config = ExportConfig(**vars(options))
    ModelDirectory(directory).require_finished()
    for path in filter(None, (config.source, config.reference)):
        with readable(path):
            pass

    from keras_transformer.export.pipeline import export as run
    from keras_transformer.export.verify.equality import VerificationError

    try:
        run(directory, config)
    except VerificationError as error:
        print(f"keras-transformer export: {error}", file=sys.stderr)
        return 1
    return 0


def import_marian(arguments: list[str]) -> int:
    """Make a model directory of a Hugging Face MarianMTModel, such as OPUS-MT's."""
    parser = make_parser(import_marian)
    parser.add_argument("directory", help="with config.json, model.safetensors, source.spm, target.spm and vocab.json")
    parser.add_argument("--output", required=True, help="the model directory to make")
    parser.add_argument("--overwrite", action="store_true", help="replace the model or the run that lies there")
    options = parser.parse_args(arguments)

    from keras_transformer.export.marian.importer import import_marian as run

    print(f"The model is in {run(options.directory, options.output, options.overwrite).path}", file=sys.stderr)
    return 0


#: Name on the command line -> the command.
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "prepare": prepare,
    "train": train,
    "average": average,
    "translate": translate,
    "evaluate": evaluate,
    "score": score,
    "plot-attention": plot_attention,
    "export": export,
    "import-marian": import_marian,
}
