"""Scores of a trained model on a test set."""

import dataclasses
from collections.abc import Sequence

import sacrebleu

from keras_transformer.batching import BATCH_SIZE, BATCH_TOKENS
from keras_transformer.translation import Translator

#: How sacreBLEU can divide lines into words without further packages.
BLEU_TOKENIZERS = ("13a", "none", "intl", "zh", "char")


@dataclasses.dataclass(frozen=True)
class Scores:
    """Scores with what is needed to reproduce them.

    Attributes:
        bleu: corpus BLEU, 0 to 100; cased, and with the tokenizer 13a detokenised.
        bleu_signature: sacreBLEU's signature of it.
        chrf: corpus chrF2, 0 to 100.
        chrf_signature: sacreBLEU's signature of it.
        exact_match: share of the lines that equal their reference.
        sentences: number of lines.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    exact_match: float
    sentences: int

    def __str__(self):
        return (
            f"BLEU {self.bleu:.2f}  {self.bleu_signature}\n"
            f"chrF {self.chrf:.2f}  {self.chrf_signature}\n"
            f"exact match {self.exact_match:.4f} of {self.sentences} lines"
        )


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
    bleu, chrf = sacrebleu.metrics.BLEU(tokenize=bleu_tokenize), sacrebleu.metrics.CHRF()
    return Scores(
        bleu=bleu.corpus_score(translations, [references]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf=chrf.corpus_score(translations, [references]).score,
        chrf_signature=str(chrf.get_signature()),
        exact_match=sum(a == b for a, b in zip(translations, references, strict=True)) / len(references),
        sentences=len(references),
    )


def evaluate(
    translator: Translator,
    source: Sequence[str],
    references: Sequence[str],
    batch_size: int = BATCH_SIZE,
    batch_tokens: int = BATCH_TOKENS,
    bleu_tokenize: str = "13a",
) -> Scores:
    """Translates a test set and scores the result.

    Args:
        translator: any runtime's.
        source: lines to translate.
        references: their translations, as many lines.
        batch_size: sentences translated at a time, at most.
        batch_tokens: source tokens translated at a time, at most, padding counted.
        bleu_tokenize: see `score`.

    Returns:
        `Scores`.

    Raises:
        ValueError: see `score`.
    """
    if len(source) != len(references):
        raise ValueError(f"Source and reference do not align: {len(source)} and {len(references)} lines")
    _require_known(bleu_tokenize)
    return score([t.text for t in translator.translate(source, batch_size, batch_tokens)], references, bleu_tokenize)


def _require_known(bleu_tokenize):
    if bleu_tokenize not in BLEU_TOKENIZERS:
        raise ValueError(f"`bleu_tokenize` must be one of {', '.join(BLEU_TOKENIZERS)}. Received: {bleu_tokenize}")
