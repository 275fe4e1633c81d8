"""The base class of translators whose runtime maps token ids to token ids."""

import dataclasses
from typing import NamedTuple

import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.decoding import BeamSearch
from keras_transformer.storage.languages import Direction, Languages
from keras_transformer.storage.source_text import SourceText
from keras_transformer.text.lines import checked_lines, encode_lines, max_tokens
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translate.alignment import from_attention
from keras_transformer.translate.batching import BatchLimits, pad
from keras_transformer.translate.protected_text import ProtectedText
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.translation import Translation
from keras_transformer.translate.translator import Translator


class _Sentence(NamedTuple):
    """The input of a sentence."""

    source: list[int]
    direction: Direction


class TokenTranslator(Translator):
    """Base class of translators that search over token ids. Subclasses implement `search` and `mean_attention`.

    Args:
        source_tokenizer: `Tokenizer` of the source.
        target_tokenizer: `Tokenizer` of the target.
        num_positions: number of learned positions of the model, or `None` if any length is supported.
        parallel_batches: number of batches that are translated at the same time. Above 1, `search` must be
            thread-safe.
        protect: `"auto"`, `"off"` or a regular expression; see `Protection`.
        source_text: what is known of the source text that the model was trained on.
        languages: the languages of the model. Default: `Languages()`, one pair whose codes are unknown.
    """

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        num_positions: int | None = None,
        parallel_batches: int = 1,
        protect: str = "auto",
        source_text: SourceText | None = None,
        languages: Languages | None = None,
    ):
        super().__init__(parallel_batches, Protection(protect, source_text, source_tokenizer.spelling))
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.languages = languages or self.languages
        self.max_source_length = max_tokens(num_positions) - self.languages.max_source_prefix

    def search(
        self, source: np.ndarray, n_best: int | None = None, prefix: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Searches for the hypotheses of one batch.

        Args:
            source: int32 `(batch, source_length)`.
            n_best: number of hypotheses per row. An export with a fixed search ignores it. Default: `n_best` of the
                strategy or of the export.
            prefix: int32 `(batch, prefix_length)`, padded: the first tokens of the hypotheses of each row. Default:
                none.

        Returns:
            Tokens int32 `(batch, n_best, length)` and scores float32 `(batch, n_best)`, best first.
        """
        raise NotImplementedError

    def mean_attention(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Computes the cross-attention weights of given targets.

        Args:
            source: int32 `(batch, source_length)`.
            target: int32 `(batch, target_length)`, without the start token, such as tokens from `search`.

        Returns:
            Float32 `(batch, target_length, source_length)`, the mean over heads and layers; with CTranslate2 over the
            heads of the last layer.
        """
        raise NotImplementedError

    def attention(self, line: str, translation: Translation) -> tuple[np.ndarray, list[str], list[str]]:
        """Returns the cross-attention weights of a translation, to plot them.

        Args:
            line: the line.
            translation: its translation by this model.

        Returns:
            Float32 `(target_length, source_length)`, see `mean_attention`; and the source and target subwords, without
            the parts that are not translated.
        """
        sentences = ProtectedText(checked_lines("line", [line]), self.protection).sentences
        (ids,) = encode_lines(self.source_tokenizer, sentences[:1] or [""], self.max_source_length)
        source = self._direction(translation).source_ids(ids)
        weights = self._weights([source], [translation.tokens])[0]
        pieces = self.source_tokenizer.pieces, self.target_tokenizer.pieces
        return weights, [pieces[0][i] for i in source], [pieces[1][i] for i in translation.tokens]

    def _align_sentences(self, lines, translations):
        source = encode_lines(self.source_tokenizer, lines, self.max_source_length)
        spans = self.source_tokenizer.encoded_spans(lines)
        prefixes = [self._direction(translation).source_prefix for translation in translations]
        source = [[*prefix, *ids] for prefix, ids in zip(prefixes, source, strict=True)]
        alignments = {}
        for batch in BatchLimits().batches([max(len(source[i]), len(t.tokens)) for i, t in enumerate(translations)]):
            weights = self._weights([source[i] for i in batch], [translations[i].tokens for i in batch])
            for i, rows in zip(batch, weights, strict=True):
                target = self.target_tokenizer.decoded_spans(translations[i].tokens)
                first, count = len(prefixes[i]), len(source[i]) - len(prefixes[i]) - 1
                alignments[i] = from_attention(rows[:, first:], spans[i][:count], target)
        return [alignments[i] for i in range(len(lines))]

    def _direction(self, translation) -> Direction:
        """The languages of a translation."""
        return self.languages.direction(translation.source_language, translation.target_language)

    def _weights(self, source, target) -> np.ndarray:
        """`mean_attention` of rows of ids. A batch of targets without tokens has no weights."""
        source, target = pad(source), pad(target)
        return self.mean_attention(source, target) if target.size else np.zeros((*target.shape, source.shape[1]))

    def count_tokens(self, lines):
        """See `Translator.count_tokens`."""
        return [len(ids) - 1 for ids in self.source_tokenizer.encode(lines)]

    def _sentences(self, lines, numbers, directions):
        rows = encode_lines(self.source_tokenizer, lines, self.max_source_length, numbers)
        sentences = [_Sentence(each.source_ids(ids), each) for ids, each in zip(rows, directions, strict=True)]
        lengths = [len(one.source) if len(ids) > 1 else 0 for ids, one in zip(rows, sentences, strict=True)]
        return sentences, lengths

    def _translate_batch(self, sentences, n_best):
        directions = [sentence.direction for sentence in sentences]
        prefix = pad([direction.target_prefix for direction in directions])
        forced = {"prefix": prefix} if prefix.size else {}
        tokens, scores = self.search(pad([sentence.source for sentence in sentences]), n_best, **forced)
        return [self._translations(*found) for found in zip(tokens, scores, directions, strict=True)]

    def _translations(self, tokens, scores, direction) -> list[Translation]:
        """The hypotheses of a sentence."""
        texts = self.target_tokenizer.decode(tokens)
        ids = [tuple(int(i) for i in row if i != PAD_ID) for row in tokens]
        found = [Translation(*one) for one in zip(texts, map(float, scores), ids, strict=True)]
        return [one.between(direction) for one in found] if self.languages.are_several else found


def with_n_best(strategy, n_best: int | None):
    """Sets `n_best` of a `BeamSearch`. Other strategies are returned unchanged."""
    return dataclasses.replace(strategy, n_best=n_best) if n_best and isinstance(strategy, BeamSearch) else strategy
