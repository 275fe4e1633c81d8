"""Translation with a Keras model."""

import dataclasses
import zlib
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.decoding import BeamSearch, Sampling, Shortlist
from keras_transformer.storage.languages import Languages, languages_of
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.source_text import SourceText, source_text_of
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translate.finished_model import load_ensemble
from keras_transformer.translate.token_translator import TokenTranslator, with_n_best


class ModelTranslator(TokenTranslator):
    """Translates with a `Transformer` in memory.

    Args:
        model: a `Transformer`.
        tokenizers: source tokenizer and target tokenizer.
        strategy: `BeamSearch`, `GreedySearch` or `Sampling`. Default: `BeamSearch()`. The number of hypotheses per line
            is an argument of `translate`. With a seed, the samples of a line depend on the seed and the line only.
        parallel_batches: number of batches that are translated at the same time. It must be 1 on other backends than
            TensorFlow.
        protect: what is not translated: `"auto"`, `"off"` or a regular expression; see
            `keras_transformer.translate.Protection`.
        source_text: what is known of the source text that the model was trained on.
        shortlist: the `Shortlist` of the tokens among which to search. Default: the whole vocabulary.
        languages: the languages of the model. Default: `Languages()`, one pair whose codes are unknown.

    Raises:
        ValueError: if `parallel_batches` is not positive, or above 1 on another backend than TensorFlow, or `protect`
            is not a regular expression.

    Example:

        ModelTranslator(model, (tokenizer, tokenizer), GreedySearch()).translate(["Two men are outside."])[0].text
    """

    def __init__(
        self,
        model,
        tokenizers: tuple[Tokenizer, Tokenizer],
        strategy=None,
        parallel_batches: int = 1,
        protect: str = "auto",
        source_text: SourceText | None = None,
        shortlist: Shortlist | None = None,
        languages: Languages | None = None,
    ):
        _check_backend(parallel_batches)
        super().__init__(*tokenizers, model.config.max_length, parallel_batches, protect, source_text, languages)
        self.model, self.shortlist = model, shortlist
        self.strategy = strategy or BeamSearch()

    def search(
        self, source: np.ndarray, n_best: int | None = None, prefix: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `TokenTranslator.search`."""
        strategy = with_n_best(self.strategy, n_best)
        if isinstance(strategy, Sampling) and isinstance(strategy.seed, int):
            strategy = dataclasses.replace(strategy, seed=[_seed_of(strategy.seed, row) for row in source])
        constraints = self.target_tokenizer.text_constraints
        options = {"shortlist": self.shortlist, "text_constraints": constraints}
        return self.model.generate(source, strategy, prefix=prefix, **options)[:2]

    def mean_attention(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """See `TokenTranslator.mean_attention`."""
        return self.model.mean_attention(source, target)


def _check_backend(parallel_batches):
    """Several threads may use a Keras model at the same time only with TensorFlow."""
    backend = keras.backend.backend()
    if parallel_batches > 1 and backend != "tensorflow":
        raise ValueError(
            f"`parallel_batches` must be 1 on the {backend} backend. Received: parallel_batches={parallel_batches}"
        )


def _seed_of(seed: int, row: np.ndarray) -> int:
    """A seed for one sentence."""
    return seed << 32 | zlib.crc32(row[row != PAD_ID].tobytes())


class KerasTranslator(ModelTranslator):
    """Translates with the Keras model of a model directory, or with the models of several directories together.

    Args:
        directory: model directory of a finished training, or a list of directories whose models have the same
            tokenizers; see `keras_transformer.Ensemble`.
        strategy: see `ModelTranslator`.
        parallel_batches: see `ModelTranslator`.
        protect: see `ModelTranslator`.

    Raises:
        ValueError: if a directory contains no finished model, a model file cannot be read, a tokenizer belongs to
            another model, or the tokenizers of several models differ. For `parallel_batches`, see `ModelTranslator`.

    Example:

        KerasTranslator("runs/en-de").translate(["Two men are outside."])[0].text
    """

    def __init__(
        self,
        directory: str | Path | Sequence[str | Path],
        strategy=None,
        parallel_batches: int = 1,
        protect: str = "auto",
    ):
        _check_backend(parallel_batches)
        directories = [directory] if isinstance(directory, (str, Path)) else directory
        loaded = load_ensemble([ModelDirectory(path) for path in directories])
        languages = languages_of(directories[0])
        others = [path for path in directories if languages_of(path).tokens != languages.tokens]
        if others:
            raise ValueError(
                "The models of an ensemble must have the same language tokens. "
                f"Received: {directories[0]} and {others[0]}, whose tokens differ"
            )
        known = {"source_text": source_text_of(directories[0]), "languages": languages}
        super().__init__(*loaded, strategy, parallel_batches, protect, **known)
