"""The base class of the translators of all runtimes."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

from keras_transformer.checks import require, same_number
from keras_transformer.decoding import BeamSearch, GreedySearch, Sampling
from keras_transformer.storage.languages import Direction, Languages
from keras_transformer.text.lines import MAX_LENGTH, check_no_string, checked_lines
from keras_transformer.translate.alignment import Alignment, diagonal
from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS, BatchLimits
from keras_transformer.translate.protected_text import ProtectedText
from keras_transformer.translate.protection import Protection
from keras_transformer.translate.threads import check_threads
from keras_transformer.translate.translation import Translation, best_first

#: A language of all lines or one for each line.
OfLines = str | None | Iterable[str | None]


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
        languages: the `Languages` of the model.
        strategy: the decoding strategy, which can be replaced; `None` for an export with a fixed search.
        exported_search: the options of that search.
    """

    max_source_length: int = MAX_LENGTH
    strategy: BeamSearch | GreedySearch | Sampling | None = None
    exported_search: Mapping[str, Any] = MappingProxyType({"n_best": 1})
    protection = Protection()
    languages = Languages()

    def __init__(self, parallel_batches: int = 1, protection: Protection | None = None):
        check_threads(parallel_batches=parallel_batches)
        self.parallel_batches = parallel_batches
        self.protection = protection or self.protection

    @property
    def max_n_best(self) -> int:
        """The largest number of hypotheses per line that the search can give."""
        return self.strategy.beam_size if self.strategy else self.exported_search["n_best"]

    def _sentences(
        self, lines: Sequence[str], numbers: Sequence[int], directions: Sequence[Direction]
    ) -> tuple[Sequence, list[int]]:
        """Returns the input of `_translate_batch` for each line, and its number of tokens, 0 for an empty line.

        `numbers` are the numbers of the lines, for warnings. `directions` are the languages of each line.
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
        source_language: OfLines = None,
        target_language: OfLines = None,
    ) -> list[Translation]:
        """Translates lines.

        Args:
            lines: an iterable of strings, not a single string.
            batch_size: maximum sentences per batch.
            batch_tokens: maximum source tokens per batch, including padding. A longer line is translated alone.
            n_best: maximum number of hypotheses per line. Fewer are returned if the search finds fewer with different
                words.
            progress: called with the number of lines that were translated since the previous call.
            source_language: code of the source language, or one for each line, for models with several languages.
                Default: the language of the model, or its default language.
            target_language: code of the target language, or one for each line.

        Returns:
            One `Translation` per line, in the order of the lines.

        Raises:
            ValueError: if `lines` is a string or contains other objects than strings, `batch_size` or `batch_tokens`
                is not positive, `n_best` is not in [1, `max_n_best`], or the model does not know a language or needs
                one that is not given.

        Warns:
            UserWarning: for each line with more than `max_source_length` subwords, which is truncated.
        """
        limits = BatchLimits(batch_size, batch_tokens)
        self.check_n_best(n_best)
        lines = checked_lines("lines", lines)
        given = {"source_language": source_language, "target_language": target_language}
        given = {name: codes if isinstance(codes, str | None) else [*codes] for name, codes in given.items()}
        for name, codes in given.items():
            require(same_number("items", **{"lines": lines, name: codes}) if isinstance(codes, list) else [])
        directions = [*itertools.islice(self._directions(**given), len(lines))]
        return self._translate(lines, directions, limits, n_best, progress)

    def _directions(self, source_language: OfLines, target_language: OfLines) -> Iterator[Direction]:
        """The languages of each line. There is no end if each language is one for all lines."""
        each = _each("source_language", source_language), _each("target_language", target_language)
        return map(functools.cache(self.languages.direction), *each)

    def _translate(self, lines, directions, limits, n_best, progress, first_line=1):
        text = ProtectedText(lines, self.protection, first_line)
        of_sentences = [directions[number - first_line] for number in text.line_numbers]
        found = self._translate_sentences(text, of_sentences, limits, n_best, progress or (lambda count: None))
        joined = text.joined(found, n_best, self._align_sentences)
        if not self.languages.are_several:
            return joined
        return [one.between(direction) for one, direction in zip(joined, directions, strict=True)]

    def _translate_sentences(self, text, directions, limits, n_best, progress):
        """Translates the sentences of a `ProtectedText` as they are."""
        numbers = text.line_numbers
        sentences, lengths = self._sentences(text.sentences, numbers, directions)
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
        source_language: OfLines = None,
        target_language: OfLines = None,
    ) -> Iterator[Translation]:
        """Translates a stream of lines that need not fit in memory. Chunks of 64 batches are sorted by length.

        Args:
            lines: an iterable of strings, which is read one chunk at a time.
            batch_size: see `translate`.
            batch_tokens: see `translate`.
            n_best: see `translate`.
            progress: see `translate`.
            first_line: number of the first line, for warnings.
            source_language: see `translate`. The languages of the lines may also be a stream.
            target_language: see `source_language`.

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
        directions = self._directions(source_language, target_language)
        for chunk in limits.chunks(lines):
            chunk = checked_lines("lines", chunk)
            of_chunk = [*itertools.islice(directions, len(chunk))]
            yield from self._translate(chunk, of_chunk, limits, n_best, progress, first_line)
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


def _each(name: str, languages: OfLines) -> Iterator[str | None]:
    """The language of each line."""
    if isinstance(languages, str | None):
        yield from itertools.repeat(languages)
    else:
        yield from languages
        raise ValueError(f"`{name}` must be one language, or one for each line. Received: fewer languages than lines")
