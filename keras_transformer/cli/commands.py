"""All commands. Each parses its options, then imports and calls the implementation."""

import os
import sys
from collections.abc import Callable

from jsonargparse.typing import NonNegativeInt

from keras_transformer.cli.options import make_parser
from keras_transformer.cli.runtime_options import (
    add_batching,
    add_encoding,
    add_languages,
    add_optional_file,
    add_runtime,
    add_sampling,
    add_test_set,
)
from keras_transformer.cli.training_commands import average, distill, prepare, shortlist, train

_DIRECTORIES = (
    "model directory that `train` or `import` has written, or several, separated by commas, that translate together"
)


def translate(arguments: list[str]) -> None:
    """Translate standard input or a file, one sentence per line."""
    parser = make_parser(translate, loads_models=True)
    parser.add_argument("directory", help=_DIRECTORIES)
    add_optional_file(parser, "text to translate, plain or .gz; default: standard input")
    add_encoding(parser)
    parser.add_argument(
        "--output", help="file to write in UTF-8; it appears when all lines are translated; default: standard output"
    )
    parser.add_argument("--resume", action="store_true", help="resume an interrupted translation to `--output`")
    line_by_line = "translate each line as soon as it is read; slower; always on for input from a terminal"
    parser.add_argument("--line_by_line", action="store_true", help=line_by_line)
    parser.add_argument(
        "--json", action="store_true", help="write one JSON object per line: source, translations (text, score)"
    )
    read = "read one JSON object per line: source and, for a model with several languages, source_language and "
    parser.add_argument("--from_json", action="store_true", help=f"{read}target_language")
    split = "split each line into sentences and translate each of them; white space is kept; needs the extra `serve`"
    parser.add_argument("--split_sentences", action="store_true", help=split)
    protect = (
        "what is not translated; auto: what is no language, such as 12:30, URLs, {placeholders}, <tags> and unknown "
        "emoji; off: nothing; or a regular expression for more parts"
    )
    parser.add_argument("--protect", default="auto", help=protect)
    add_languages(parser, more=", or for `--split_sentences`")
    add_runtime(parser)
    add_sampling(parser)
    parser.epilog = (
        "With `--n_best` above 1, each hypothesis is written on one line with tab-separated columns: "
        "number of the source line from 1, score, text."
    )
    options = parser.parse_args(arguments)

    from keras_transformer.cli.translate_files import translate as run

    run(options)


def evaluate(arguments: list[str]) -> None:
    """Translate a test set and print BLEU, chrF and exact match."""
    parser = make_parser(evaluate, loads_models=True)
    parser.add_argument("directory", help=_DIRECTORIES)
    add_test_set(parser)
    add_languages(parser)
    add_runtime(parser, skip={"n_best"})
    options = parser.parse_args(arguments)

    from keras_transformer.cli.translate_files import evaluate as run

    run(options)


def compare(arguments: list[str]) -> None:
    """Compare two models on a test set: BLEU, chrF and TER with significance, and the lines that differ most."""
    parser = make_parser(compare, loads_models=True)
    help = "model directory, several separated by commas, or a file of translations, one per line of `--source`"
    parser.add_argument("first", help=help)
    parser.add_argument("second", help=help)
    add_test_set(parser)
    differences = "number of lines to list where the second is better, and where it is worse"
    parser.add_argument("--differences", type=NonNegativeInt, default=5, help=differences)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_languages(parser)
    add_runtime(parser, skip={"n_best"})
    options = parser.parse_args(arguments)

    from keras_transformer.cli.translate_files import compare as run

    run(options)


def score(arguments: list[str]) -> None:
    """Print the log probability of given translations."""
    parser = make_parser(score, loads_models=True)
    parser.add_argument("directory", help="model directory that `train` or `import` has written")
    parser.add_argument("--source", required=True, help="source text, plain or .gz")
    parser.add_argument("--target", required=True, help="translations, one per line of `--source`")
    add_encoding(parser)
    add_languages(parser)
    add_batching(parser, "pairs", "tokens of the longer side")
    parser.epilog = (
        "The output is one line per pair with tab-separated columns: log probability, "
        "number of tokens including the end token, log probability per token."
    )
    options = parser.parse_args(arguments)

    from keras_transformer.cli.translate_files import score as run

    run(options)


def plot_attention(arguments: list[str]) -> None:
    """Plot the cross-attention of each head of a decoder layer for one sentence. Needs the extra `plot`."""
    parser = make_parser(plot_attention, loads_models=True)
    parser.add_argument("directory", help="model directory that `train` or `import` has written")
    parser.add_argument("sentence", help="source sentence")
    parser.add_argument("--output", required=True, help="image file to write, such as .png, .pdf or .svg")
    parser.add_argument("--target", help="target sentence; default: the translation of the model")
    parser.add_argument("--layer", type=int, help="number of the decoder layer, from 1; default: the last layer")
    add_languages(parser)
    options = parser.parse_args(arguments)

    from keras_transformer.cli.attention_plot import draw_attention as run

    print(run(**vars(options)))


def export(arguments: list[str]) -> int | None:
    """Export a model to SavedModel, ONNX or another format, and compare it with the Keras model."""
    _without_memory_pool()

    from keras_transformer.export.config import ExportConfig
    from keras_transformer.export.registry import describe_formats
    from keras_transformer.storage.model_directory import ModelDirectory
    from keras_transformer.text.files import readable

    parser = make_parser(export, loads_models=True)
    parser.add_argument("directory", help="model directory that `train` or `import` has written")
    parser.add_class_arguments(ExportConfig)
    parser.describe_option("format", describe_formats())
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


def serve(arguments: list[str]) -> None:
    """Serve translations over HTTP, with the API of LibreTranslate and a web page."""
    from keras_transformer.apps.serve.config import ServeConfig

    parser = make_parser(serve, loads_models=True)
    parser.add_argument(
        "directories", nargs="+", help="model directories, each of a pair of languages or of several languages"
    )
    parser.add_class_arguments(ServeConfig)
    options = parser.parse_args(arguments)
    directories = options.pop("directories")
    config = ServeConfig(**vars(options))

    from keras_transformer.apps.serve.server import serve as run

    run(directories, config)


def import_(arguments: list[str]) -> int | None:
    """Convert a model of Hugging Face to a model directory: OPUS-MT, M2M-100, NLLB-200, mBART-50, T5 or MADLAD-400."""
    _without_memory_pool()
    parser = make_parser(import_)
    directory = (
        "folder with config.json, the weights (model.safetensors; or pytorch_model.bin, which needs the extra `torch`) "
        "and all files of the tokenizer; or hf://owner/name[@revision], a model of the Hugging Face Hub, which needs "
        "the extra `hub`"
    )
    parser.add_argument("directory", help=directory)
    parser.add_argument("--output", required=True, help="model directory to write")
    parser.add_argument("--overwrite", action="store_true", help="replace the model or the run in `--output`")
    for side, code in (("source", "en"), ("target", "de")):
        language = (
            f"code of the {side} language, such as {code}; for a model with several languages, the other commands use "
            "it if they get no language; default: the language that the files of the model name, if any"
        )
        parser.add_argument(f"--{side}_language", help=language)
    compare = (
        "compare token ids, logits, greedy search and beam search with those of transformers; if logits or searches "
        "differ, nothing is written and the exit status is 1; needs the extra `transformers`"
    )
    parser.add_argument("--verify", action="store_true", help=compare)
    text = (
        "text in UTF-8 to compare, plain or .gz, of which the first 200 lines are read; default: random pieces of the "
        "vocabulary"
    )
    parser.add_argument("--source", help=text)
    options = parser.parse_args(arguments)

    from keras_transformer.export.importer.importer import import_checkpoint as run
    from keras_transformer.export.verify.errors import VerificationError

    try:
        directory = run(**vars(options))
    except VerificationError as error:
        print(f"keras-transformer import: {error}", file=sys.stderr)
        return 1
    print(f"Wrote the model to {directory.path}", file=sys.stderr)


def _without_memory_pool():
    """Turns off the oneDNN operations of TensorFlow: they use a pool that never returns memory to the system.

    Must be called before TensorFlow is imported. They are on by default if the processor has AVX512-VNNI or AMX. For a
    model of 600 million parameters, the pool holds up to 3 GB, and the searches that verify an export are not faster.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


def doctor(arguments: list[str]) -> int:
    """Show versions, devices, what is missing, and how to install it."""
    make_parser(doctor).parse_args(arguments)

    from keras_transformer.cli.doctor import examine

    return 0 if examine() else 1


#: Name on the command line -> the command. It returns an exit status, or nothing for 0.
COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "prepare": prepare,
    "distill": distill,
    "train": train,
    "average": average,
    "translate": translate,
    "evaluate": evaluate,
    "compare": compare,
    "score": score,
    "plot-attention": plot_attention,
    "export": export,
    "shortlist": shortlist,
    "serve": serve,
    "import": import_,
    "doctor": doctor,
}
