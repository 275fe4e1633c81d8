"""BLEU of validation sentences during training."""

from collections.abc import Sequence

import keras

from keras_transformer.decoding import GreedySearch
from keras_transformer.tokenization import Tokenizer
from keras_transformer.training.evaluate import evaluate
from keras_transformer.translation import Translator


class _GreedyTranslator(Translator):
    """Of the model as it stands."""

    def __init__(self, tokenizers, model):
        super().__init__(tokenizers[0], tokenizers[-1], model.config.max_length)
        self.model = model

    def search(self, source, n_best=None):
        return tuple(self.model.generate(source, GreedySearch())[:2])


class ValidationBleu(keras.callbacks.Callback):
    """Adds `val_bleu` to the logs: sacreBLEU, cased and detokenised, of greedy translations.

    Args:
        tokenizers: of the source and of the target, or the shared one.
        source: the sentences.
        target: their translations.
    """

    def __init__(self, tokenizers: tuple[Tokenizer, ...], source: Sequence[str], target: Sequence[str]):
        super().__init__()
        self.tokenizers = tokenizers
        self.source, self.target = source, target

    def on_test_end(self, logs=None):
        translator = _GreedyTranslator(self.tokenizers, self.model)
        self.bleu = evaluate(translator, self.source, self.target, batch_size=64).bleu

    def on_epoch_end(self, epoch, logs=None):
        logs["val_bleu"] = self.bleu
