"""BLEU of validation sentences during training."""

import keras
import tensorflow as tf

from keras_transformer.decoding import GreedySearch
from keras_transformer.tokenization import Tokenizer
from keras_transformer.training.evaluate import evaluate
from keras_transformer.translation import Translator


class _GreedyTranslator(Translator):
    """Of the model as it stands."""

    def __init__(self, tokenizers, model):
        super().__init__(tokenizers[0], tokenizers[-1], model.config.max_length)
        self.model = model

    def search(self, source):
        return tuple(self.model.generate(source, GreedySearch())[:2])


class ValidationBleu(keras.callbacks.Callback):
    """Adds `val_bleu` to the logs: sacreBLEU, cased and detokenised, of greedy translations.

    Args:
        tokenizers: of the source and of the target, or the shared one.
        pairs: dataset of `(source, target)` strings; its first ones are used.
        sentences: how many.
    """

    def __init__(self, tokenizers: tuple[Tokenizer, ...], pairs: tf.data.Dataset, sentences: int):
        super().__init__()
        self.tokenizers = tokenizers
        texts = [
            [side.decode("utf-8", errors="replace") for side in pair]
            for pair in pairs.take(sentences).as_numpy_iterator()
        ]
        self.source, self.target = zip(*texts, strict=True)

    def on_test_end(self, logs=None):
        translator = _GreedyTranslator(self.tokenizers, self.model)
        self.bleu = evaluate(translator, self.source, self.target, batch_size=64).bleu

    def on_epoch_end(self, epoch, logs=None):
        logs["val_bleu"] = self.bleu
