"""Loading a translator for any runtime."""

import pkgutil
from collections.abc import Sequence
from pathlib import Path

from keras_transformer.checks import one_of, require
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.translate.threads import check_threads, default_parallel_batches, set_keras_threads

_ONNX = "keras_transformer.export.onnx.translator:OnnxTranslator"
#: The runtimes: Keras, and the exports that `translate` can use. Each has a class, which is imported when it is
#: loaded, and options of that class. Its constructor takes the directory and the keyword arguments
#: `parallel_batches`, `protect` and, except with Keras, `num_threads`.
TRANSLATORS = {
    "keras": ("keras_transformer.translate.keras_translator:KerasTranslator", {}),
    "saved_model": ("keras_transformer.export.saved_model.translator:SavedModelTranslator", {}),
    "onnx": (_ONNX, {}),
    "onnx_int8": (_ONNX, {"quantize": "int8"}),
    "onnx_float16": (_ONNX, {"quantize": "float16"}),
    "ctranslate2": ("keras_transformer.export.ctranslate2.translator:CTranslate2Translator", {}),
}
RUNTIMES = tuple(TRANSLATORS)
#: The runtimes from the fastest on CPUs to the slowest, for `serve`.
FASTEST_FIRST = ("onnx_int8", "onnx", "ctranslate2", "saved_model", "onnx_float16", "keras")


def load_translator(
    directory: str | Path | Sequence[str | Path],
    runtime: str = "keras",
    num_threads: int = 0,
    parallel_batches: int | None = 1,
    **options,
):
    """Loads a translator from a model directory.

    Args:
        directory: the model directory. With `"keras"` also a list of directories; see `KerasTranslator`.
        runtime: `"keras"`, or an export of the directory: `"saved_model"`, `"onnx"`, `"onnx_int8"`, `"onnx_float16"` or
            `"ctranslate2"`.
        num_threads: threads per batch. 0: the cores are divided among `parallel_batches`. The runtimes `"keras"` and
            `"saved_model"` use TensorFlow's threads, which are set for the whole process and only before TensorFlow
            has run an operation.
        parallel_batches: batches translated at the same time. `None`: as on the command line; see
            `keras_transformer.translate.threads.default_parallel_batches`.
        **options: options of the translator of this runtime, such as `KerasTranslator` or `OnnxTranslator`.

    Returns:
        A `Translator`.

    Raises:
        ValueError: if the runtime is unknown, the model or export is missing, `num_threads` is negative or cannot be
            set any more, or `parallel_batches` is not positive, or above 1 with Keras on another backend than
            TensorFlow.
    """
    require(one_of(RUNTIMES, runtime=runtime))
    check_threads(num_threads, 1 if parallel_batches is None else parallel_batches)
    if runtime == "keras":
        for path in [directory] if isinstance(directory, (str, Path)) else directory:
            ModelDirectory(path).require_finished()  # Before the import of Keras, which takes many seconds.
    if parallel_batches is None:
        parallel_batches = default_parallel_batches(runtime, num_threads)
    if runtime == "keras":
        set_keras_threads(num_threads, parallel_batches)
    else:
        options["num_threads"] = num_threads
    name, own_options = TRANSLATORS[runtime]
    return pkgutil.resolve_name(name)(directory, parallel_batches=parallel_batches, **own_options, **options)


def available_runtimes(directory: str | Path) -> list[str]:
    """The runtimes that can load a finished model directory: `"keras"`, and the exports that it contains.

    Args:
        directory: the model directory.

    Returns:
        Their names, for `load_translator`.
    """
    exported = ModelDirectory(directory).exported
    return [runtime for runtime in RUNTIMES if runtime == "keras" or exported(runtime).is_dir()]
