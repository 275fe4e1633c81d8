"""BLEU of validation sentences during training."""

from collections.abc import Sequence

import keras

from keras_transformer.decoding import GreedySearch
from keras_transformer.evaluation.scores import evaluate
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translate.keras_translator import ModelTranslator


class ValidationBleu(keras.callbacks.Callback):
    """Adds `val_bleu` to the logs: sacreBLEU (cased, detokenized) of greedy translations of validation sentences."""

    def __init__(self, tokenizers: tuple[Tokenizer, ...], source: Sequence[str], target: Sequence[str]):
        super().__init__()
        self.tokenizers = tokenizers
        self.source, self.target = source, target

    def on_test_end(self, logs=None):
        tokenizers = self.tokenizers[0], self.tokenizers[-1]
        translator = ModelTranslator(self.model, tokenizers, GreedySearch(), protect="off")
        self.bleu = evaluate(translator, self.source, self.target, batch_size=64).bleu

    def on_epoch_end(self, epoch, logs=None):
        logs["val_bleu"] = self.bleu
