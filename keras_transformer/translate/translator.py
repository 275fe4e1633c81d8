"""Base classes of the translators of all runtimes."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np

from keras_transformer.config import PAD_ID
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.storage.source_text import SourceText
from keras_transformer.text.lines import MAX_LENGTH, check_no_string, checked_lines, encode_lines, max_tokens
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.translate.alignment import Alignment, diagonal, from_attention
from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS, BatchLimits, pad
from keras_transformer.translate.protected_text import ProtectedText
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.threads import check_threads
from keras_transformer.translate.translation import Translation, best_first


class Translator:
    """Base class that translates lines. Subclasses implement `count_tokens`, `_sentences` and `_translate_batch`.

    Lines are translated in batches of similar length and returned in the order of the input. The translation of an
    empty line is an empty line. What is no language is not translated; see `Protection`.

    Args:
        parallel_batches: number of batches that are translated at the same time. A text with fewer batches is divided
            into smaller ones. Above 1, `_translate_batch` must be thread-safe.
        protection: decides what is not translated. Default: what is no language in any text.

    Attributes:
        max_source_length: maximum subwords per line, not counting the end token. Longer lines are truncated.
        protection: the argument.
        strategy: the decoding strategy, which can be replaced; `None` for an export with a fixed search.
        exported_search: the options of that search.
    """

    max_source_length: int = MAX_LENGTH
    strategy: BeamSearch | GreedySearch | Sampling | None = None
    exported_search: Mapping[str, Any] = MappingProxyType({"n_best": 1})
    protection = Protection()

    def __init__(self, parallel_batches: int = 1, protection: Protection | None = None):
        check_threads(parallel_batches=parallel_batches)
        self.parallel_batches = parallel_batches
        self.protection = protection or self.protection

    @property
    def max_n_best(self) -> int:
        """The largest number of hypotheses per line that the search can give."""
        return self.strategy.beam_size if self.strategy else self.exported_search["n_best"]

    def _sentences(self, lines: Sequence[str], numbers: Sequence[int]) -> tuple[Sequence, list[int]]:
        """Returns the input of `_translate_batch` for each line, and its number of tokens, 0 for an empty line.

        `numbers` are the numbers of the lines, for warnings.
        """
        raise NotImplementedError

    def _translate_batch(self, sentences: Sequence, n_best: int) -> list[list[Translation]]:
        """Searches for the `n_best` hypotheses, best first, of each sentence in a batch of results of `_sentences`."""
        raise NotImplementedError

    def translate(
        self,
        lines: Iterable[str],
        batch_size: int = BATCH_SIZE,
        batch_tokens: int = BATCH_TOKENS,
        n_best: int = 1,
        progress: Callable[[int], object] | None = None,
    ) -> list[Translation]:
        """Translates lines.

        Args:
            lines: an iterable of strings, not a single string.
            batch_size: maximum sentences per batch.
            batch_tokens: maximum source tokens per batch, including padding. A longer line is translated alone.
            n_best: maximum number of hypotheses per line. Fewer are returned if the search finds fewer with different
                words.
            progress: called with the number of lines that were translated since the previous call.

        Returns:
            One `Translation` per line, in the order of the lines.

        Raises:
            ValueError: if `lines` is a string or contains other objects than strings, `batch_size` or `batch_tokens`
                is not positive, or `n_best` is not in [1, `max_n_best`].

        Warns:
            UserWarning: for each line with more than `max_source_length` subwords, which is truncated.
        """
        limits = BatchLimits(batch_size, batch_tokens)
        self.check_n_best(n_best)
        return self._translate(lines, limits, n_best, progress)

    def _translate(self, lines, limits, n_best, progress, first_line=1):
        text = ProtectedText(checked_lines("lines", lines), self.protection, first_line)
        found = self._translate_sentences(text, limits, n_best, progress or (lambda count: None))
        return text.joined(found, n_best, self._align_sentences)

    def _translate_sentences(self, text, limits, n_best, progress):
        """Translates the sentences of a `ProtectedText` as they are."""
        numbers = text.line_numbers
        sentences, lengths = self._sentences(text.sentences, numbers)
        translations = [Translation("", 0.0)] * len(sentences)
        # The longest batch first, so that parallel batches end at about the same time.
        batches = limits.batches_for(self.parallel_batches, lengths)[::-1]
        # The last sentence of a line counts as the line.
        is_last = [number != after for number, after in itertools.zip_longest(numbers, numbers[1:])]
        progress(text.num_lines - sum(is_last[i] for batch in batches for i in batch))
        inputs = [[sentences[i] for i in batch] for batch in batches]
        with ThreadPoolExecutor(self.parallel_batches) as pool:
            run = pool.map if self.parallel_batches > 1 and len(batches) > 1 else map
            found_in_batches = run(self._best_of_batch, inputs, itertools.repeat(n_best))
            for batch, found in zip(batches, found_in_batches, strict=True):
                for i, translation in zip(batch, found, strict=True):
                    translations[i] = translation
                progress(sum(is_last[i] for i in batch))
        return translations

    def _best_of_batch(self, sentences, n_best) -> list[Translation]:
        """Translates a batch. Searches again, for all hypotheses, where the first ones are empty or repeat others."""
        found = [best_first(hypotheses, n_best) for hypotheses in self._translate_batch(sentences, n_best)]
        lacking = [i for i, one in enumerate(found) if not one.text.strip() or len(one.hypotheses) < n_best]
        if lacking and n_best < self.max_n_best:
            more = self._translate_batch([sentences[i] for i in lacking], self.max_n_best)
            for i, hypotheses in zip(lacking, more, strict=True):
                found[i] = best_first(hypotheses, n_best)
        return found

    def translate_stream(
        self,
        lines: Iterable[str],
        batch_size: int = BATCH_SIZE,
        batch_tokens: int = BATCH_TOKENS,
        n_best: int = 1,
        progress: Callable[[int], object] | None = None,
        first_line: int = 1,
    ) -> Iterator[Translation]:
        """Translates a stream of lines that need not fit in memory. Chunks of 64 batches are sorted by length.

        Args:
            lines: an iterable of strings, which is read one chunk at a time.
            batch_size: see `translate`.
            batch_tokens: see `translate`.
            n_best: see `translate`.
            progress: see `translate`.
            first_line: number of the first line, for warnings.

        Yields:
            One `Translation` per line, in the order of the lines.

        Raises:
            ValueError: see `translate`.

        Warns:
            UserWarning: see `translate`.
        """
        limits = BatchLimits(batch_size, batch_tokens)
        check_no_string("lines", lines)
        self.check_n_best(n_best)
        for chunk in limits.chunks(lines):
            yield from self._translate(chunk, limits, n_best, progress, first_line)
            first_line += len(chunk)

    def align(self, lines: Sequence[str], translations: Sequence[Translation]) -> list[Alignment]:
        """Aligns the subwords of lines with those of their translations.

        Args:
            lines: the lines.
            translations: one translation of each line by this model.

        Returns:
            One `Alignment` per line, from the cross-attention of the model. A runtime that does not return attention
            weights aligns words by their relative position instead. Parts that are not translated are aligned with
            themselves.
        """
        text = ProtectedText(checked_lines("lines", lines), self.protection)
        return text.align(translations, self._align_sentences)

    def _align_sentences(self, lines: Sequence[str], translations: Sequence[Translation]) -> list[Alignment]:
        """Aligns lines that were translated as they are."""
        return [diagonal(line, translation.text) for line, translation in zip(lines, translations, strict=True)]

    def count_tokens(self, lines: Sequence[str]) -> list[int]:
        """Number of subwords of each line, not counting the end token.

        Args:
            lines: the lines.
        """
        raise NotImplementedError

    def check_n_best(self, n_best: int) -> None:
        """Checks a number of hypotheses.

        Raises:
            ValueError: if `n_best` is not in [1, `max_n_best`].
        """
        if not 1 <= n_best <= self.max_n_best:
            raise ValueError(
                f"`n_best` must be in [1, {self.max_n_best}], the limit of this search or export. "
                f"Received: n_best={n_best}"
            )


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
    """

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        num_positions: int | None = None,
        parallel_batches: int = 1,
        protect: str = "auto",
        source_text: SourceText | None = None,
    ):
        super().__init__(parallel_batches, Protection(protect, source_text, source_tokenizer.spelling))
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_source_length = max_tokens(num_positions)

    def search(self, source: np.ndarray, n_best: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Searches for the hypotheses of one batch.

        Args:
            source: int32 `(batch, source_length)`.
            n_best: number of hypotheses per row. An export with a fixed search ignores it. Default: `n_best` of the
                strategy or of the export.

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
        (source,) = encode_lines(self.source_tokenizer, sentences[:1] or [""], self.max_source_length)
        weights = self._weights([source], [translation.tokens])[0]
        pieces = self.source_tokenizer.pieces, self.target_tokenizer.pieces
        return weights, [pieces[0][i] for i in source], [pieces[1][i] for i in translation.tokens]

    def _align_sentences(self, lines, translations):
        source = encode_lines(self.source_tokenizer, lines, self.max_source_length)
        spans = self.source_tokenizer.encoded_spans(lines)
        alignments = {}
        for batch in BatchLimits().batches([max(len(source[i]), len(t.tokens)) for i, t in enumerate(translations)]):
            weights = self._weights([source[i] for i in batch], [translations[i].tokens for i in batch])
            for i, rows in zip(batch, weights, strict=True):
                target = self.target_tokenizer.decoded_spans(translations[i].tokens)
                alignments[i] = from_attention(rows, spans[i][: len(source[i]) - 1], target)
        return [alignments[i] for i in range(len(lines))]

    def _weights(self, source, target) -> np.ndarray:
        """`mean_attention` of rows of ids. A batch of targets without tokens has no weights."""
        source, target = pad(source), pad(target)
        return self.mean_attention(source, target) if target.size else np.zeros((*target.shape, source.shape[1]))

    def count_tokens(self, lines):
        """See `Translator.count_tokens`."""
        return [len(ids) - 1 for ids in self.source_tokenizer.encode(lines)]

    def _sentences(self, lines, numbers):
        sentences = encode_lines(self.source_tokenizer, lines, self.max_source_length, numbers)
        return sentences, [len(ids) if len(ids) > 1 else 0 for ids in sentences]

    def _translate_batch(self, sentences, n_best):
        found = []
        for tokens, scores in zip(*self.search(pad(sentences), n_best), strict=True):
            texts = self.target_tokenizer.decode(tokens)
            ids = [tuple(int(i) for i in row if i != PAD_ID) for row in tokens]
            found.append([Translation(*one) for one in zip(texts, map(float, scores), ids, strict=True)])
        return found


def with_n_best(strategy, n_best: int | None):
    """Sets `n_best` of a `BeamSearch`. Other strategies are returned unchanged."""
    return dataclasses.replace(strategy, n_best=n_best) if n_best and isinstance(strategy, BeamSearch) else strategy
