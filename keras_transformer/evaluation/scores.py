"""Evaluation of a translator on a test set: BLEU, chrF and exact match."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from keras_transformer.checks import one_of, require, same_number
from keras_transformer.counting import counted
from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS
from keras_transformer.translate.translator import Translator

#: Tokenizers of sacreBLEU that need no other packages.
BLEU_TOKENIZERS = ("13a", "none", "intl", "zh", "char")
#: Default tokenizer of BLEU.
BLEU_TOKENIZE = "13a"

BLEU_IS_UNDEFINED = "BLEU is undefined: the lines are too short for sequences of 4 words"


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores of translations, with the sacreBLEU signatures to reproduce them.

    Attributes:
        bleu: corpus BLEU, 0 to 100, cased. It is undefined if `has_4_grams` is false.
        bleu_signature: sacreBLEU signature of `bleu`.
        chrf: corpus chrF2, 0 to 100.
        chrf_signature: sacreBLEU signature of `chrf`.
        exact_match: fraction of the lines that equal their reference.
        sentences: number of lines.
        has_4_grams: whether translations and references contain sequences of four words. If all lines are shorter,
            BLEU is near 0 even for correct translations.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact_match: float
    sentences: int
    has_4_grams: bool = True

    def __str__(self):
        bleu = f"BLEU {self.bleu:.2f}  {self.bleu_signature}"
        chrf = f"chrF {self.chrf:.2f}  {self.chrf_signature}"
        exact = f"exact match {self.exact_match:.4f} of {counted(self.sentences, 'line')}"
        if self.has_4_grams:
            return f"{bleu}\n{chrf}\n{exact}"
        return f"{chrf}\n{exact}\n{BLEU_IS_UNDEFINED}"


def corpus_scores(translations: Sequence[str], references: Sequence[str], bleu_tokenize: str = BLEU_TOKENIZE) -> Scores:
    """Scores translations against references.

    Args:
        translations: one translation per line.
        references: one reference per translation.
        bleu_tokenize: tokenizer of sacreBLEU: `13a`, `none` (text that is already tokenized), `intl`, `zh` (Chinese) or
            `char`.

    Returns:
        `Scores`.

    Raises:
        ValueError: if the numbers of lines are 0 or differ, or `bleu_tokenize` is unknown.
    """
    require(
        one_of(BLEU_TOKENIZERS, bleu_tokenize=bleu_tokenize),
        same_number("lines", smallest=1, translations=translations, references=references),
    )
    bleu, chrf = bleu_metric(bleu_tokenize), CHRF()
    result = bleu.corpus_score(translations, [references])
    return Scores(
        bleu=result.score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf.corpus_score(translations, [references]).score,
        chrf_signature=str(chrf.get_signature()),
        exact_match=sum(a == b for a, b in zip(translations, references, strict=True)) / len(references),
        sentences=len(references),
        has_4_grams=has_4_grams(bleu, translations, references),
    )


def bleu_metric(bleu_tokenize: str) -> BLEU:
    """The metric of sacreBLEU, without its warning about tokenized text."""
    return BLEU(tokenize=bleu_tokenize, force=bleu_tokenize == "none")


def has_4_grams(bleu: BLEU, *texts: Sequence[str]) -> bool:
    """Whether each text has sequences of four words. BLEU is undefined otherwise."""
    return all(bleu.corpus_score(lines, [lines]).totals[3] > 0 for lines in texts)


def evaluate(
    translator: Translator,
    source: Sequence[str],
    references: Sequence[str],
    batch_size: int = BATCH_SIZE,
    batch_tokens: int = BATCH_TOKENS,
    bleu_tokenize: str = BLEU_TOKENIZE,
    progress: Callable[[int], object] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Scores:
    """Translates a test set and scores the result.

    Args:
        translator: a `Translator` of any runtime.
        source: lines to translate.
        references: reference translations, one per line of `source`.
        batch_size: maximum sentences per batch.
        batch_tokens: maximum source tokens per batch, including padding.
        bleu_tokenize: see `corpus_scores`.
        progress: see `Translator.translate`.
        source_language: see `Translator.translate`.
        target_language: see `Translator.translate`.

    Returns:
        `Scores`.

    Raises:
        ValueError: see `corpus_scores`.
    """
    check_test_set(source, references, bleu_tokenize)
    languages = {"source_language": source_language, "target_language": target_language}
    named: dict[str, Any] = {name: code for name, code in languages.items() if code is not None}
    translations = translator.translate(source, batch_size, batch_tokens, progress=progress, **named)
    return corpus_scores([translation.text for translation in translations], references, bleu_tokenize)


def check_test_set(source: Sequence[str], references: Sequence[str], bleu_tokenize: str) -> None:
    """Checks the arguments of `evaluate` before a model is loaded.

    Raises:
        ValueError: if the numbers of lines are 0 or differ, or `bleu_tokenize` is unknown.
    """
    require(
        one_of(BLEU_TOKENIZERS, bleu_tokenize=bleu_tokenize),
        same_number("lines", smallest=1, source=source, reference=references),
    )
