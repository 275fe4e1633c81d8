"""Scores of a trained model on a test set."""

import dataclasses
from collections.abc import Callable, Sequence

import sacrebleu

from keras_transformer.text.batching import BATCH_SIZE, BATCH_TOKENS
from keras_transformer.text.translator import Translator

#: How sacreBLEU can divide lines into words without further packages.
BLEU_TOKENIZERS = ("13a", "none", "intl", "zh", "char")


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores with what is needed to reproduce them.

    Attributes:
        bleu: corpus BLEU, 0 to 100; cased, and with the tokenizer 13a detokenised. It says nothing unless
            `has_4_grams`.
        bleu_signature: sacreBLEU's signature of it.
        chrf: corpus chrF2, 0 to 100.
        chrf_signature: sacreBLEU's signature of it.
        exact_match: share of the lines that equal their reference.
        sentences: number of lines.
        has_4_grams: whether translations and references hold sequences of four words, of which BLEU is made. It is
            near 0 where all lines are shorter, however right they are.
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
        exact = f"exact match {self.exact_match:.4f} of {self.sentences} lines"
        if self.has_4_grams:
            return f"{bleu}\n{chrf}\n{exact}"
        return f"{chrf}\n{exact}\nBLEU is undefined: the lines are too short for sequences of 4 words"


def score(translations: Sequence[str], references: Sequence[str], bleu_tokenize: str = "13a") -> Scores:
    """Scores translations against references.

    Args:
        translations: one a line.
        references: as many lines.
        bleu_tokenize: one of `BLEU_TOKENIZERS`; `none` for text that is tokenised already, `zh` for Chinese.

    Returns:
        `Scores`.

    Raises:
        ValueError: if there are none, or not as many of each, or there is no such tokenizer.
    """
    _require_known(bleu_tokenize)
    if len(translations) != len(references) or not references:
        raise ValueError(
            f"As many translations as references are needed. Received: {len(translations)} and {len(references)}"
        )
    # With text that is tokenized already, sacreBLEU would warn of it.
    bleu = sacrebleu.metrics.BLEU(tokenize=bleu_tokenize, force=bleu_tokenize == "none")
    chrf = sacrebleu.metrics.CHRF()
    result, perfect = (bleu.corpus_score(lines, [references]) for lines in (translations, references))
    return Scores(
        bleu=result.score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf.corpus_score(translations, [references]).score,
        chrf_signature=str(chrf.get_signature()),
        exact_match=sum(a == b for a, b in zip(translations, references, strict=True)) / len(references),
        sentences=len(references),
        has_4_grams=result.totals[3] > 0 and perfect.totals[3] > 0,
    )


def evaluate(
    translator: Translator,
    source: Sequence[str],
    references: Sequence[str],
    batch_size: int = BATCH_SIZE,
    batch_tokens: int = BATCH_TOKENS,
    bleu_tokenize: str = "13a",
    progress: Callable[[int], object] | None = None,
) -> Scores:
    """Translates a test set and scores the result.

    Args:
        translator: any runtime's.
        source: lines to translate.
        references: their translations, as many lines.
        batch_size: sentences translated at a time, at most.
        batch_tokens: source tokens translated at a time, at most, padding counted.
        bleu_tokenize: see `score`.
        progress: see `Translator.translate`.

    Returns:
        `Scores`.

    Raises:
        ValueError: see `score`.
    """
    check_test_set(source, references, bleu_tokenize)
    translations = translator.translate(source, batch_size, batch_tokens, progress=progress)
    return score([translation.text for translation in translations], references, bleu_tokenize)


def check_test_set(source: Sequence[str], references: Sequence[str], bleu_tokenize: str) -> None:
    """Checks what `evaluate` is given, before a model is loaded.

    Args:
        source: lines to translate.
        references: their translations.
        bleu_tokenize: see `score`.

    Raises:
        ValueError: if there are no lines, not as many of each, or there is no such tokenizer.
    """
    if len(source) != len(references):
        raise ValueError(f"Source and reference do not align: {len(source)} and {len(references)} lines")
    if not source:
        raise ValueError("Source and reference must have lines. Received: 0 and 0")
    _require_known(bleu_tokenize)


def _require_known(bleu_tokenize):
    if bleu_tokenize not in BLEU_TOKENIZERS:
        raise ValueError(f"`bleu_tokenize` must be one of {', '.join(BLEU_TOKENIZERS)}. Received: {bleu_tokenize}")
