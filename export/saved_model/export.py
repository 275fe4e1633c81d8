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
    prefix_programs,
    signature_of,
    write_model_program,
)
from keras_transformer.export.saved_model.translator import SavedModelTranslator
from keras_transformer.export.verify.equality import compare
from keras_transformer.text.lines import max_tokens

_TEXT = tf.TensorSpec([None], tf.string, name="text")
_LANGUAGES = [tf.TensorSpec([None], tf.string, name=f"{side}_language") for side in ("source", "target")]
_ROWS = tf.TensorSpec([None, None], tf.int32)


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
        self._languages = languages = exported.languages
        self._max_source_length = max_tokens(exported.model.config.max_length) - languages.max_source_prefix

    def signatures(self) -> dict:
        """The signatures by name. Those without languages need a default."""
        functions: dict = {"tokens": (self._tokens, [_ROWS])}
        if self._languages.has_default:
            functions |= {"serving_default": (self._serving_default, [_TEXT]), "n_best": (self._n_best, [_TEXT])}
        if self._languages.are_several:
            inputs = [_TEXT, *_LANGUAGES]
            functions |= {"between": (self._between, inputs), "n_best_between": (self._n_best_between, inputs)}
        if self._languages.forces_target:
            functions["tokens_after_prefix"] = self._tokens_after_prefix, [_ROWS, _ROWS]
        return {name: tf.function(function, input_signature=specs) for name, (function, specs) in functions.items()}

    def _serving_default(self, text):
        """The best translation of each line, between the default languages."""
        return self._best(text, *self._default(text))

    def _n_best(self, text):
        """The best translations of each line, best first, between the default languages."""
        return self._all(text, *self._default(text))

    def _between(self, text, source_language, target_language):
        """The best translation of each line, between the languages of this line."""
        return self._best(text, *self._prefixes(source_language, target_language))

    def _n_best_between(self, text, source_language, target_language):
        """The best translations of each line, best first, between the languages of this line."""
        return self._all(text, *self._prefixes(source_language, target_language))

    def _tokens(self, source):
        """The best translations of each row of token ids, as token ids, and token scores if the strategy has them."""
        return self._found(source)

    def _tokens_after_prefix(self, source, prefix):
        """As `_tokens`. Each hypothesis begins with the prefix of its row, which is padded."""
        return self._found(source, prefix=prefix)

    @tf.function(input_signature=[_TEXT])
    def source_lengths(self, text):
        """Tokens of each line, and the maximum that is translated. A function for the client, not a signature."""
        return self._source_tokenizer.tokenize(text).row_lengths(), self._max_source_length

    @tf.function(input_signature=[])
    def search_options(self):
        """The exported search as JSON. A function for the client, not a signature."""
        return tf.constant(json.dumps(self._strategy.options))

    def _found(self, source, **inputs):
        hypotheses = self._search(source, self._strategy, **inputs)
        token_scores = {"token_scores": hypotheses.token_scores} if self._strategy.token_scores else {}
        return {"tokens": hypotheses.tokens, "scores": hypotheses.scores, **token_scores}

    def _best(self, text, *prefixes):
        texts, scores = self._translate_some(text, dataclasses.replace(self._strategy, n_best=1), *prefixes)
        return {"translation": texts[:, 0], "score": scores[:, 0]}

    def _all(self, text, *prefixes):
        texts, scores = self._translate_some(text, self._strategy, *prefixes)
        return {"translations": texts, "scores": scores}

    def _default(self, text):
        """The prefixes of the default languages, as `_prefixes`."""
        return [_repeated(ids, text) for ids in self._languages.direction().prefixes]

    def _prefixes(self, source_language, target_language):
        """The tokens at the start of sources and of targets, two int32 matrices `(batch, length)`."""
        source = _language_tokens("source_language", source_language, self._languages.source_tokens)
        target = _language_tokens("target_language", target_language, self._languages.target_tokens)
        start = _repeated(self._languages.source_start, source_language)
        if self._languages.forces_target:
            return tf.concat([start, source], axis=1), target
        return tf.concat([start, source, target], axis=1), target[:, :0]

    def _translate_some(self, text, strategy, *prefixes):
        """`_translate`, also for an empty batch."""
        nothing = (tf.constant([], tf.string), tf.constant([], tf.float32))
        shape = [0, strategy.n_best]
        return tf.cond(
            tf.size(text) > 0,
            lambda: self._translate(text, strategy, *prefixes),
            lambda: tuple(tf.reshape(part, shape) for part in nothing),
        )

    def _translate(self, text, strategy, source_prefix, target_prefix):
        ids = self._source_tokenizer.tokenize(text)[:, : self._max_source_length]
        source = tf.concat([source_prefix, ids, tf.fill([tf.size(text), 1], EOS_ID)], axis=1).to_tensor(PAD_ID)
        forced = {"prefix": target_prefix} if self._languages.forces_target else {}
        tokens, scores, _ = self._search(source, dataclasses.replace(strategy, token_scores=False), **forced)
        has_text = (ids.row_lengths() > 0)[:, None]
        is_text = (tokens != PAD_ID) & (tokens != EOS_ID) & has_text[..., None]
        rows = tf.reshape(tokens, [-1, tf.shape(tokens)[2]])
        lengths = tf.reshape(tf.reduce_sum(tf.cast(is_text, tf.int32), axis=-1), [-1])
        texts = self._target_tokenizer.detokenize(tf.RaggedTensor.from_tensor(rows, lengths))
        return tf.reshape(texts, tf.shape(scores)), tf.where(has_text, scores, 0.0)


def _repeated(ids, batch):
    """Ids for each element of a batch, int32 `(batch, length)`."""
    return tf.tile(tf.constant([ids], tf.int32), [tf.size(batch), 1])


def _language_tokens(name, codes, tokens):
    """The tokens of languages, int32 `(batch, 1)`, or `(batch, 0)` if languages have no tokens.

    Args:
        name: name of the input with the codes.
        codes: strings `(batch,)`.
        tokens: code -> id, or `None` for languages without a token. Empty: any code, without a token.
    """
    if not tokens:
        return tf.zeros([tf.size(codes), 0], tf.int32)
    is_language = codes[:, None] == tf.constant([*tokens])
    message = f"`{name}` must be a language of the model: {', '.join(tokens)}"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(tf.reduce_any(is_language, axis=1)), [message])]):
        places = tf.argmax(is_language, axis=1)
    ids = tf.gather(tf.constant([i or 0 for i in tokens.values()], tf.int32), places)
    return ids[:, None][:, : int(None not in tokens.values())]


def write_saved_model(exported: Exported, path: Path) -> None:
    """Writes the SavedModel to a new folder: without tokenizers, the program of the model alone."""
    if exported.tokenizers is None:
        write_model_program(exported, path)
        return
    server = _Server(exported)
    tf.saved_model.save(server, str(path), signatures=server.signatures())


def programs(path: Path, exported: Exported) -> dict[str, Program]:
    """The programs of an export; see `ExportFormat`."""
    if exported.tokenizers is None:
        client = load_saved_model_program(path, signature_of(exported))
        return model_programs(exported, "saved_model", client, is_approximate=False)
    translator = SavedModelTranslator(path, protect="off")
    return {
        "saved_model": Program(translator, exported.strategy, compare, takes_text=True),
        **prefix_programs(exported, "saved_model", translator, compare),
    }
