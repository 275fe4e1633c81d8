"""Export to SavedModel, from strings to strings: it contains the tokenizers and the search."""

import dataclasses
import json
from pathlib import Path

import tensorflow as tf
import tensorflow_text as tf_text

from keras_transformer.config import EOS_ID, PAD_ID
from keras_transformer.export.format import Exported, Program
from keras_transformer.export.programs import (
    load_saved_model_program,
    model_programs,
    signature_of,
    write_model_program,
)
from keras_transformer.export.saved_model.translator import SavedModelTranslator
from keras_transformer.export.verify.equality import compare
from keras_transformer.text.lines import max_tokens


class _Server(tf.Module):
    """The signatures, and information for this package's client."""

    def __init__(self, exported):
        super().__init__()
        # Tracked, so that the SavedModel has them.
        self._weights = [variable.value for variable in exported.model.variables]
        source, target = exported.tokenizers
        # A loaded SavedModel would share one tokenizer between two resources with the same name.
        self._source_tokenizer = tf_text.SentencepieceTokenizer(source.model, name="source")
        self._target_tokenizer = tf_text.SentencepieceTokenizer(target.model, name="target")
        self._search = exported.search
        self._strategy = exported.strategy
        self._max_source_length = max_tokens(exported.model.config.max_length)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serving_default(self, text):
        """The best translation of each line."""
        texts, scores = self._translate_some(text, dataclasses.replace(self._strategy, n_best=1))
        return {"translation": texts[:, 0], "score": scores[:, 0]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def n_best(self, text):
        """The best translations of each line, best first."""
        texts, scores = self._translate_some(text, self._strategy)
        return {"translations": texts, "scores": scores}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def tokens(self, source):
        """The best translations of each row of token ids, as token ids, and token scores if the strategy has them."""
        hypotheses = self._search(source, self._strategy)
        token_scores = {"token_scores": hypotheses.token_scores} if self._strategy.token_scores else {}
        return {"tokens": hypotheses.tokens, "scores": hypotheses.scores, **token_scores}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def source_lengths(self, text):
        """Tokens of each line, and the maximum that is translated. A function for the client, not a signature."""
        return self._source_tokenizer.tokenize(text).row_lengths(), self._max_source_length

    @tf.function(input_signature=[])
    def search_options(self):
        """The exported search as JSON. A function for the client, not a signature."""
        return tf.constant(json.dumps(self._strategy.options))

    def _translate_some(self, text, strategy):
        """`_translate`, also for an empty batch."""
        nothing = (tf.constant([], tf.string), tf.constant([], tf.float32))
        shape = [0, strategy.n_best]
        return tf.cond(
            tf.size(text) > 0,
            lambda: self._translate(text, strategy),
            lambda: tuple(tf.reshape(part, shape) for part in nothing),
        )

    def _translate(self, text, strategy):
        ids = self._source_tokenizer.tokenize(text)[:, : self._max_source_length]
        source = tf.concat([ids, tf.fill([tf.size(text), 1], EOS_ID)], axis=1).to_tensor(PAD_ID)
        tokens, scores, _ = self._search(source, dataclasses.replace(strategy, token_scores=False))
        has_text = (ids.row_lengths() > 0)[:, None]
        is_text = (tokens != PAD_ID) & (tokens != EOS_ID) & has_text[..., None]
        rows = tf.reshape(tokens, [-1, tf.shape(tokens)[2]])
        lengths = tf.reshape(tf.reduce_sum(tf.cast(is_text, tf.int32), axis=-1), [-1])
        texts = self._target_tokenizer.detokenize(tf.RaggedTensor.from_tensor(rows, lengths))
        return tf.reshape(texts, tf.shape(scores)), tf.where(has_text, scores, 0.0)


def write_saved_model(exported: Exported, path: Path) -> None:
    """Writes the SavedModel to a new folder: without tokenizers, the program of the model alone."""
    if exported.tokenizers is None:
        write_model_program(exported, path)
        return
    server = _Server(exported)
    signatures = {name: getattr(server, name) for name in ("serving_default", "n_best", "tokens")}
    tf.saved_model.save(server, str(path), signatures=signatures)


def programs(path: Path, exported: Exported) -> dict[str, Program]:
    """The programs of an export; see `ExportFormat`."""
    if exported.tokenizers is None:
        client = load_saved_model_program(path, signature_of(exported))
        return model_programs(exported, "saved_model", client, is_approximate=False)
    translator = SavedModelTranslator(path, protect="off")
    return {"saved_model": Program(translator, exported.strategy, compare, takes_text=True)}
