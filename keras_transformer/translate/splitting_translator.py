"""Translation of lines with several sentences."""

import warnings

from keras_transformer.text.lines import checked_lines, level_outside_package
from keras_transformer.text.sentences import SentenceSplitter
from keras_transformer.translate.translation import Translation, best_first, by_rank
from keras_transformer.translate.translator import Translator


class SplittingTranslator(Translator):
    """Splits lines into sentences, translates the sentences, and puts each line together with its own white space.

    The nth hypothesis of a line consists of the nth hypotheses of its sentences, or the last one of a sentence with
    fewer. Its score is the sum of theirs.

    Args:
        translator: translates the sentences.
        language: code of the source language; see `SentenceSplitter`.

    Raises:
        ValueError: if sentencex is not installed.

    Example:

        translator = SplittingTranslator(OnnxTranslator("runs/en-de"), "en")
        translator.translate(["Two men are outside. A dog runs."])[0].text
    """

    def __init__(self, translator: Translator, language: str | None = None):
        super().__init__(translator.parallel_batches)
        self._translator = translator
        self._splitter = SentenceSplitter(language, translator.count_tokens, translator.max_source_length)

    @property
    def max_n_best(self) -> int:
        """See `Translator.max_n_best`."""
        return self._translator.max_n_best

    def _translate(self, lines, limits, n_best, progress, first_line=1):
        lines = checked_lines("lines", lines)
        texts = [self._splitter.split(line) for line in lines]
        for number, text in enumerate(texts, first_line):
            for warning in text.warnings:
                warnings.warn(f"line {number}: {warning}", stacklevel=level_outside_package())
        sentences = [sentence for text in texts for sentence in text.sentences]
        found = iter(self._translator.translate(sentences, limits.batch_size, limits.batch_tokens, n_best))
        translations = []
        for text in texts:
            ranks = by_rank([next(found) for _ in text.sentences], n_best)
            translations.append(best_first([_joined(text, rank) for rank in ranks], n_best))
        if progress:
            progress(len(lines))
        return translations


def _joined(text, sentences):
    return Translation(text.join(s.text for s in sentences), sum(s.score for s in sentences))
