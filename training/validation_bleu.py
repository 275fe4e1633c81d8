"""BLEU of validation sentences during training."""

from collections.abc import Sequence
from pathlib import Path

import keras

from keras_transformer.checks import require, same_number
from keras_transformer.decoding import GreedySearch
from keras_transformer.evaluation.scores import evaluate
from keras_transformer.storage.languages import Languages
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.storage.tokenizers import load_tokenizers
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translate.keras_translator import ModelTranslator


class ValidationBleu(keras.callbacks.Callback):
    """Adds `val_bleu` to the logs: sacreBLEU (cased, detokenized) of translations of validation sentences.

    BLEU is computed once per epoch: at the end of the validation of `fit`, or at the end of the epoch if `fit` has no
    validation data. Place this callback before those that read `val_bleu`, such as `EarlyStopping`.

    Attributes:
        bleu: the latest BLEU; `None` before the first.

    Args:
        tokenizers: `Tokenizer`s, `(shared,)` or `(source, target)`.
        source: source sentences.
        target: their translations.
        strategy: a search strategy. Default: greedy search.
        batch_size: number of sentences that are translated at a time.
        languages: the languages of the model, whose default are those of the sentences. Default: `Languages()`.

    Raises:
        ValueError: if `source` and `target` are empty or have different numbers of sentences.

    Example:

        bleu = ValidationBleu.from_prepared("tokens/en-de", sentences=200)
        best = keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=3)
        model.fit(data, callbacks=[bleu, best])
    """

    def __init__(
        self,
        tokenizers: Sequence[Tokenizer],
        source: Sequence[str],
        target: Sequence[str],
        strategy=None,
        batch_size: int = 64,
        languages: Languages | None = None,
    ):
        super().__init__()
        require(same_number("sentences", 1, source=source, target=target))
        self.languages = languages
        self.tokenizers = tokenizers[0], tokenizers[-1]
        self.source, self.target = source, target
        self.strategy = strategy or GreedySearch()
        self.batch_size = batch_size
        self.bleu: float | None = None
        self._is_current = False

    @classmethod
    def from_prepared(cls, prepared: str | Path, sentences: int, **kwargs) -> "ValidationBleu":
        """Takes the tokenizers and the first validation sentences of a folder written by `prepare`.

        Args:
            prepared: the folder.
            sentences: maximum number of sentences.
            **kwargs: `strategy` and `batch_size`.

        Raises:
            ValueError: if the validation text has several pairs of languages.
        """
        tokens = TokenDirectory(prepared)
        record = tokens.record()
        languages = Languages.from_record(record)
        if languages.are_several:
            if "validation_languages" not in record:
                raise ValueError(
                    f"BLEU requires validation text in one pair of languages. Received: {prepared} has several"
                )
            languages = languages.with_default(*record["validation_languages"])
        return cls(load_tokenizers(tokens), *tokens.validation_lines(sentences), languages=languages, **kwargs)

    def on_epoch_begin(self, epoch, logs=None):
        self._is_current = False

    def on_test_end(self, logs=None):
        self._evaluate()

    def on_epoch_end(self, epoch, logs=None):
        if not self._is_current:
            self._evaluate()
        if logs is not None:
            logs["val_bleu"] = self.bleu

    def _evaluate(self):
        options = {"protect": "off", "languages": self.languages}
        translator = ModelTranslator(self.model, self.tokenizers, self.strategy, **options)
        self.bleu = evaluate(translator, self.source, self.target, batch_size=self.batch_size).bleu
        self._is_current = True
