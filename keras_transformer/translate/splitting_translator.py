"""Translation of lines with several sentences."""

import functools
import warnings

from keras_transformer.text.lines import level_outside_package
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.translate.translation import Translation, best_first, by_rank
from keras_transformer.translate.translator import Translator


class SplittingTranslator(Translator):
    """Splits lines into sentences, translates the sentences, and puts each line together with its own white space.

    The nth hypothesis of a line consists of the nth hypotheses of its sentences, or the last one of a sentence with
    fewer. Its score is the sum of theirs.

    Args:
        translator: translates the sentences.
        language: code of the source language, if the translator does not know it; see `SentenceSplitter`.

    Raises:
        ValueError: if sentencex is not installed.

    Example:

        translator = SplittingTranslator(OnnxTranslator("runs/en-de"), "en")
        translator.translate(["Two men are outside. A dog runs."])[0].text
    """

    def __init__(self, translator: Translator, language: str | None = None):
        super().__init__(translator.parallel_batches)
        self._translator, self.languages = translator, translator.languages
        self._splitter = functools.cache(
            lambda known: SentenceSplitter(known or language, translator.count_tokens, translator.max_source_length)
        )
        self._splitter(None)  # Raises errors before the work.

    @property
    def max_n_best(self) -> int:
        """See `Translator.max_n_best`."""
        return self._translator.max_n_best

    def _translate(self, lines, directions, limits, n_best, progress, first_line=1):
        texts = [self._splitter(each.source).split(line) for line, each in zip(lines, directions, strict=True)]
        for number, text in enumerate(texts, first_line):
            for warning in text.warnings:
                warnings.warn(f"line {number}: {warning}", stacklevel=level_outside_package())
        sentences = [sentence for text in texts for sentence in text.sentences]
        of_sentences = [each for text, each in zip(texts, directions, strict=True) for _ in text.sentences]
        batching = limits.batch_size, limits.batch_tokens
        translated = self._translator.translate(
            sentences,
            *batching,
            n_best,
            source_language=[each.source for each in of_sentences],
            target_language=[each.target for each in of_sentences],
        )
        found = iter(translated)
        translations = []
        for text, direction in zip(texts, directions, strict=True):
            ranks = by_rank([next(found) for _ in text.sentences], n_best)
            joined = best_first([_joined(text, rank) for rank in ranks], n_best)
            translations.append(joined.between(direction) if self.languages.are_several else joined)
        if progress:
            progress(len(lines))
        return translations


def _joined(text, sentences):
    return Translation(text.join(s.text for s in sentences), sum(s.score for s in sentences))
