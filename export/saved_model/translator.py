"""The SavedModel client. It imports TensorFlow and tensorflow-text, not Keras."""

import json
from pathlib import Path

import numpy as np

from keras_transformer.export.origin import export_folder
from keras_transformer.export.threads import set_tensorflow_threads, threads_of_a_batch
from keras_transformer.model_directory import ModelDirectoryError
from keras_transformer.text.lines import warn_of_long
from keras_transformer.text.translator import Translation, Translator, best_first


class SavedModelTranslator(Translator):
    """Translates with the SavedModel's signatures, which tokenize for themselves: without token ids.

    Args:
        directory: a model directory with a SavedModel export, or the export's own folder.
        num_threads: TensorFlow's threads; see `keras_transformer.export.threads.set_tensorflow_threads`.
        parallel_batches: batches translated at a time; see `OnnxTranslator`.

    Raises:
        ValueError: if there is no export, it was made from another model, it cannot be read, a number of
            threads or batches is out of range, or it is too late to set it.

    Example:

        SavedModelTranslator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(self, directory: str | Path, num_threads: int = 0, parallel_batches: int = 1):
        threads_of_a_batch(num_threads, parallel_batches)
        folder = export_folder(directory, "saved_model")
        if not (folder / "saved_model.pb").is_file():
            raise ModelDirectoryError(f"No SavedModel export in {directory} (no saved_model.pb)")
        set_tensorflow_threads(num_threads, parallel_batches)
        super().__init__(parallel_batches)
        import tensorflow as tf
        import tensorflow_text  # noqa: F401, registers the tokenizer's operations

        try:
            self._loaded = tf.saved_model.load(str(folder))  # Its signatures live as long as it does.
        except (OSError, tf.errors.OpError) as error:
            raise ModelDirectoryError(f"Not a whole SavedModel: {folder} ({error})") from error
        self._signatures = self._loaded.signatures
        self.exported_search = json.loads(self._loaded.search_options().numpy())

    @property
    def max_n_best(self) -> int:
        """See `Translator.max_n_best`."""
        return self.exported_search["n_best"]

    def search(self, source: np.ndarray, n_best: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See `TokenTranslator.search`."""
        import tensorflow as tf

        result = self._signatures["tokens"](source=tf.constant(source))
        return result["tokens"].numpy(), result["scores"].numpy()

    def _sentences(self, lines, first_line):
        return lines, self._lengths(lines, first_line)  # Empty lines are the SavedModel's own affair.

    def _lengths(self, lines, first_line):
        """Subwords of each line that the SavedModel will take, with the end."""
        import tensorflow as tf

        lengths, longest = (result.numpy() for result in self._loaded.source_lengths(tf.constant(lines, tf.string)))
        warn_of_long(lines, lengths, longest, first_line)
        return [min(length, longest) + 1 for length in lengths.tolist()]

    def _translate_batch(self, sentences, n_best):
        texts, scores = self._run(sentences, n_best)
        return [
            best_first(
                [Translation(text.decode("utf-8", errors="replace"), float(score)) for text, score in hypotheses]
            )
            for hypotheses in map(zip, texts[:, :n_best], scores[:, :n_best])
        ]

    def _run(self, sentences, n_best):
        """Texts and scores `(batch, n_best)`, or more; a search for the best alone ends sooner."""
        import tensorflow as tf

        text = tf.constant(sentences, tf.string)
        if n_best > 1:
            result = self._signatures["n_best"](text=text)
            return result["translations"].numpy(), result["scores"].numpy()
        result = self._signatures["serving_default"](text=text)
        return result["translation"].numpy()[:, None], result["score"].numpy()[:, None]
