"""The SavedModel client. It imports TensorFlow and tensorflow-text, but not Keras."""

import json
from pathlib import Path

import numpy as np

from keras_transformer.storage.languages import languages_of
from keras_transformer.storage.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.storage.origin import export_command, export_folder
from keras_transformer.storage.source_text import source_text_of
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.text.lines import warn_of_long
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.threads import set_tensorflow_threads, threads_of_a_batch
from keras_transformer.translate.translation import Translation
from keras_transformer.translate.translator import Translator


class SavedModelTranslator(Translator):
    """Translates with the signatures of a SavedModel. They tokenize, so translations have no token ids.

    Args:
        directory: a model directory with a SavedModel export, or the folder of the export.
        num_threads: TensorFlow's threads; see `keras_transformer.translate.threads.set_tensorflow_threads`.
        parallel_batches: batches translated at a time; see `OnnxTranslator`.
        protect: what is not translated; see `OnnxTranslator`. The tokenizers inside the SavedModel do not tell which
            characters they lack. The tokenizer of the model directory does, if `directory` is one.

    Raises:
        ValueError: if the export is missing, damaged or made from another model, or a number of threads or batches
            is out of range or cannot be set any more.

    Example:

        SavedModelTranslator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(self, directory: str | Path, num_threads: int = 0, parallel_batches: int = 1, protect: str = "auto"):
        threads_of_a_batch(num_threads, parallel_batches)
        folder = export_folder(directory, "saved_model")
        if not (folder / "saved_model.pb").is_file():
            raise ModelDirectoryError(
                f"No SavedModel export in {directory} (no saved_model.pb). "
                f"Make one: {export_command(directory, 'saved_model')}"
            )
        set_tensorflow_threads(num_threads, parallel_batches)
        super().__init__(parallel_batches)
        import tensorflow as tf
        import tensorflow_text  # noqa: F401, registers the tokenizer's operations

        try:
            self._loaded = tf.saved_model.load(str(folder))  # An attribute, because its signatures depend on it.
        except (OSError, tf.errors.OpError) as error:
            raise ModelDirectoryError(f"Invalid SavedModel: {folder} ({error})") from error
        self._signatures = self._loaded.signatures
        self.exported_search = json.loads(self._loaded.search_options().numpy())
        self.max_source_length = int(self._lengths([])[1])
        self.protection = Protection(protect, source_text_of(folder), _spelling(directory))
        self.languages = languages_of(folder)

    def search(
        self, source: np.ndarray, n_best: int | None = None, prefix: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `TokenTranslator.search`. Only an export of a model that is forced to write a language takes a prefix."""
        import tensorflow as tf

        name, forced = ("tokens", {}) if prefix is None else ("tokens_after_prefix", {"prefix": tf.constant(prefix)})
        result = self._signatures[name](source=tf.constant(source), **forced)
        return result["tokens"].numpy(), result["scores"].numpy()

    def count_tokens(self, lines):
        """See `Translator.count_tokens`."""
        return self._lengths(lines)[0].tolist()

    def _sentences(self, lines, numbers, directions):
        lengths, longest = self._lengths(lines)
        warn_of_long(lines, lengths, longest, numbers)
        # The SavedModel truncates long lines and handles empty lines itself.
        return [*zip(lines, directions, strict=True)], [min(length, longest) + 1 for length in lengths.tolist()]

    def _lengths(self, lines):
        import tensorflow as tf

        return tuple(result.numpy() for result in self._loaded.source_lengths(tf.constant(lines, tf.string)))

    def _translate_batch(self, sentences, n_best):
        texts, scores = self._run(*zip(*sentences, strict=True), n_best)
        return [
            [Translation(text.decode("utf-8", errors="replace"), float(score)) for text, score in hypotheses]
            for hypotheses in map(zip, texts, scores)
        ]

    def _run(self, lines, directions, n_best):
        """Texts and scores, at least `(batch, n_best)`. The search for one hypothesis stops earlier."""
        import tensorflow as tf

        inputs = {"text": tf.constant(lines, tf.string)}
        best, several = "serving_default", "n_best"
        if self.languages.are_several:
            best, several = "between", "n_best_between"
            inputs["source_language"] = tf.constant([each.source or "" for each in directions])
            inputs["target_language"] = tf.constant([each.target for each in directions])
        if n_best > 1:
            result = self._signatures[several](**inputs)
            return result["translations"].numpy(), result["scores"].numpy()
        result = self._signatures[best](**inputs)
        return result["translation"].numpy()[:, None], result["score"].numpy()[:, None]


def _spelling(directory):
    """The spelling of characters by the source tokenizer of a model directory; `None` for the folder of an export."""
    places = ModelDirectory(directory)
    return load_tokenizers(places)[0].spelling if places.tokenizer_files[0].is_file() else None
