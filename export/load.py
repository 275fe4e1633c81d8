"""One door to every runtime."""

from pathlib import Path

from keras_transformer.export.registry import FORMATS, RUNTIMES
from keras_transformer.model_directory import ModelDirectory


def load_translator(directory: str | Path, runtime: str = "keras", num_threads: int = 0, **options):
    """A translator of a model directory.

    Args:
        directory: the model directory.
        runtime: one of `RUNTIMES`; all but `"keras"` need their export.
        num_threads: threads of a batch; 0 is one a core. TensorFlow's, which run `"keras"` and `"saved_model"`,
            are the whole process's, and can be set only before it has run anything.
        **options: of `KerasTranslator`, `SavedModelTranslator`, `OnnxTranslator` or `CTranslate2Translator`.

    Returns:
        An object with `translate(lines)`; see `keras_transformer.text.translator.Translator`.

    Raises:
        ValueError: if the runtime is unknown, or the directory lacks what it needs, or `num_threads`
            is negative or comes too late.
    """
    if runtime not in RUNTIMES:
        raise ValueError(f"`runtime` must be one of {', '.join(RUNTIMES)}. Received: runtime={runtime!r}")
    if runtime == "keras":
        from keras_transformer.export.threads import set_keras_threads, threads_of_a_batch
        from keras_transformer.text.keras_translator import KerasTranslator

        threads_of_a_batch(num_threads, 1)
        ModelDirectory(directory).require_finished()  # Before the import of Keras, which takes many seconds.
        set_keras_threads(num_threads)
        return KerasTranslator(directory, **options)
    return FORMATS[runtime].load(directory, num_threads=num_threads, **options)


def available_runtimes(directory: str | Path) -> list[str]:
    """The runtimes that a finished model directory can be loaded with now.

    Args:
        directory: the model directory.

    Returns:
        Some of `RUNTIMES`, in their order.
    """
    exported = ModelDirectory(directory).exported
    return [runtime for runtime in RUNTIMES if runtime == "keras" or exported(runtime).is_dir()]
