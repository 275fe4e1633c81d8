"""The SavedModel client. It imports TensorFlow and tensorflow-text, not Keras."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_transformer.model_directory import ModelDirectory, ModelDirectoryError
from keras_transformer.translation import Translation, Translator


class SavedModelTranslator(Translator):
    """Translates with the SavedModel's signatures, which tokenize for themselves.

    Args:
        directory: a model directory with a SavedModel export, or the export's own folder.

    Raises:
        ValueError: if there is no export, or it cannot be read.

    Example:

        SavedModelTranslator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(self, directory: str | Path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401, registers the tokenizer's operations

        folder = ModelDirectory(directory).saved_model
        folder = folder if folder.is_dir() else Path(directory)
        if not (folder / "saved_model.pb").is_file():
            raise ModelDirectoryError(f"No SavedModel export in {directory} (no saved_model.pb)")
        try:
            self._loaded = tf.saved_model.load(str(folder))  # Its signatures live as long as it does.
        except (OSError, tf.errors.OpError) as error:
            raise ModelDirectoryError(f"Not a whole SavedModel: {folder} ({error})") from error
        self._signatures = self._loaded.signatures
        self.exported_search = json.loads(self._loaded.search_options().numpy())

    def search(self, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `Translator.search`."""
        import tensorflow as tf

        result = self._signatures["tokens"](source=tf.constant(source))
        return result["tokens"].numpy(), result["scores"].numpy()

    def translate(self, lines: Iterable[str], batch_size: int = 32) -> list[Translation]:
        """See `Translator.translate`; the translations come without token ids."""
        import tensorflow as tf

        lines = self._checked(lines, batch_size)
        lengths, longest = (result.numpy() for result in self._loaded.source_lengths(tf.constant(lines, tf.string)))
        self._warn_of_long(lines, lengths, longest)
        order = sorted(range(len(lines)), key=lambda i: lengths[i])
        translations = [Translation("", 0.0)] * len(lines)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            result = self._signatures["serving_default"](text=tf.constant([lines[i] for i in chosen]))
            texts, scores = result["translation"].numpy(), result["score"].numpy()
            for i, text, score in zip(chosen, texts, scores, strict=True):
                translations[i] = Translation(text.decode("utf-8", errors="replace"), float(score))
        return translations
