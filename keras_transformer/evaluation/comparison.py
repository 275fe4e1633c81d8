"""Comparison of two translations of a test set: significance, scores by length, and the lines that differ most."""

import dataclasses
from collections.abc import Sequence
from typing import cast

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from keras_transformer.counting import counted
from keras_transformer.evaluation.scores import (
    BLEU_IS_UNDEFINED,
    BLEU_TOKENIZE,
    bleu_metric,
    check_test_set,
    has_4_grams,
)

#: Largest number of reference words of each group of lines.
_LENGTHS = (5, 10, 15, 20, 30, 50)
#: Probability of a difference by chance, below which it is called significant.
_SIGNIFICANT = 0.05


@dataclasses.dataclass(frozen=True)
class MetricComparison:
    """One metric of two systems.

    Attributes:
        name: `BLEU`, `chrF2` or `TER`.
        signature: sacreBLEU signature.
        scores: score of each system, 0 to 100. For TER, lower is better.
        intervals: half the width of the 95 % confidence interval of each score, by bootstrap resampling.
        p_value: probability of a difference at least as large by chance, by paired bootstrap resampling.
    """

    name: str
    signature: str
    scores: tuple[float, float]
    intervals: tuple[float, float]
    p_value: float

    @property
    def difference(self) -> float:
        """The score of the second system minus that of the first."""
        return self.scores[1] - self.scores[0]


@dataclasses.dataclass(frozen=True)
class LengthGroup:
    """The lines with a similar number of reference words.

    Attributes:
        shortest: smallest number of words.
        longest: largest number of words; `None` for the last group.
        lines: number of lines.
        bleu: BLEU of each system on these lines.
    """

    shortest: int
    longest: int | None
    lines: int
    bleu: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Difference:
    """A line that two systems translate differently.

    Attributes:
        number: number of the line, from 1.
        source: the line.
        reference: its reference translation.
        translations: its translations.
        chrf: chrF2 of each translation.
    """

    number: int
    source: str
    reference: str
    translations: tuple[str, str]
    chrf: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The comparison of two systems.

    Attributes:
        names: names of the systems.
        lines: number of lines.
        equal: number of lines with equal translations.
        metrics: `MetricComparison` of BLEU, unless it is undefined, of chrF2 and of TER.
        lengths: `LengthGroup`s, the shortest lines first. Groups whose BLEU is undefined are left out.
        worse: lines that the second system translates worse, the largest difference first.
        better: lines that the second system translates better.
    """

    names: tuple[str, str]
    lines: int
    equal: int
    metrics: tuple[MetricComparison, ...]
    lengths: tuple[LengthGroup, ...]
    worse: tuple[Difference, ...]
    better: tuple[Difference, ...]

    def __str__(self):
        rows = [
            f"1: {self.names[0]}",
            f"2: {self.names[1]}",
            f"{counted(self.lines, 'line')}, {self.equal} with equal translations",
        ]
        rows += ["", f"{'':8}{'1':>18}{'2':>18}{'difference':>12}{'p':>8}"]
        for metric in self.metrics:
            scores = zip(metric.scores, metric.intervals, strict=True)
            columns = "".join(f"{score:>11.2f} ± {interval:4.2f}" for score, interval in scores)
            verdict = "significant" if metric.p_value < _SIGNIFICANT else "not significant"
            rows.append(f"{metric.name:8}{columns}{metric.difference:>+12.2f}{metric.p_value:>8.4f}  {verdict}")
        rows += [f"{metric.name:8}{metric.signature}" for metric in self.metrics]
        if self.lengths:
            columns = f"{'words':>8}{'lines':>8}{'1':>8}{'2':>8}{'difference':>12}"
            rows += ["", "BLEU by number of reference words", columns]
        else:
            rows += ["", BLEU_IS_UNDEFINED]
        for group in self.lengths:
            words = f"{group.shortest}-{group.longest}" if group.longest else f"{group.shortest}+"
            one, other = group.bleu
            rows.append(f"{words:>8}{group.lines:>8}{one:>8.2f}{other:>8.2f}{other - one:>+12.2f}")
        for title, differences in (("2 is worse", self.worse), ("2 is better", self.better)):
            if differences:
                rows += ["", f"lines that differ most, by chrF: {title}"]
            for line in differences:
                rows += [
                    f"line {line.number}",
                    f"  source     {line.source}",
                    f"  reference  {line.reference}",
                    *(
                        f"  {i} {chrf:8.2f} {text}"
                        for i, chrf, text in zip((1, 2), line.chrf, line.translations, strict=True)
                    ),
                ]
        return "\n".join(rows)


def compare(
    names: tuple[str, str],
    translations: tuple[Sequence[str], Sequence[str]],
    source: Sequence[str],
    reference: Sequence[str],
    bleu_tokenize: str = BLEU_TOKENIZE,
    num_differences: int = 5,
) -> Comparison:
    """Compares two translations of a test set.

    Args:
        names: names of the two systems.
        translations: the translations by each system, one per line.
        source: the lines.
        reference: the reference translations.
        bleu_tokenize: tokenizer of BLEU; see `keras_transformer.evaluation.scores.corpus_scores`.
        num_differences: number of lines to list in each direction.

    Returns:
        `Comparison`.

    Raises:
        ValueError: if the numbers of lines are 0 or differ, or `bleu_tokenize` is unknown.

    Reference:
        Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation" (paired bootstrap resampling).
    """
    check_test_set(source, reference, bleu_tokenize)
    for name, lines in zip(names, translations, strict=True):
        if len(lines) != len(reference):
            raise ValueError(f"{name} must have {len(reference)} translations. Received: {len(lines)}")
    pairs = list(zip(*translations, strict=True))
    worse, better = _differences(pairs, source, reference, num_differences)
    return Comparison(
        names=names,
        lines=len(reference),
        equal=sum(one == other for one, other in pairs),
        metrics=tuple(_metrics(translations, reference, bleu_tokenize)),
        lengths=tuple(_by_length(translations, reference, bleu_tokenize)),
        worse=worse,
        better=better,
    )


def _metrics(translations, reference, bleu_tokenize):
    bleu = bleu_metric(bleu_tokenize)
    metrics: dict[str, Metric] = {"BLEU": bleu} if has_4_grams(bleu, *translations, reference) else {}
    metrics |= {"chrF": CHRF(), "TER": TER()}
    systems: list[tuple[str, Sequence[str]]] = [(str(i), list(lines)) for i, lines in enumerate(translations)]
    signatures, scores = PairedTest(systems, metrics, [list(reference)], test_type="bs")()
    for name, signature in signatures.items():
        one, other = (cast(Result, result) for result in scores[name])
        intervals = (float(one.ci or 0.0), float(other.ci or 0.0))
        # For equal scores, the bootstrap test of sacreBLEU gives the smallest p value.
        p_value = 1.0 if other.p_value is None or one.score == other.score else float(other.p_value)
        yield MetricComparison(name, str(signature), (float(one.score), float(other.score)), intervals, p_value)


def _by_length(translations, reference, bleu_tokenize):
    words = [len(line.split()) for line in reference]
    bleu, shortest = bleu_metric(bleu_tokenize), 0
    for longest in (*_LENGTHS, None):
        chosen = [i for i, count in enumerate(words) if shortest <= count and (longest is None or count <= longest)]
        *texts, references = ([lines[i] for i in chosen] for lines in (*translations, reference))
        if chosen and has_4_grams(bleu, *texts, references):
            scores = tuple(bleu.corpus_score(lines, [references]).score for lines in texts)
            yield LengthGroup(shortest, longest, len(chosen), scores)
        shortest = (longest or 0) + 1


def _differences(pairs, source, reference, count):
    chrf = CHRF()
    lines = []
    for i, (pair, line, expected) in enumerate(zip(pairs, source, reference, strict=True), 1):
        scores = tuple(chrf.sentence_score(translation, [expected]).score for translation in pair)
        lines.append(Difference(i, line, expected, pair, scores))
    lines.sort(key=lambda line: line.chrf[1] - line.chrf[0])
    worse = [line for line in lines[:count] if line.chrf[1] < line.chrf[0]]
    better = [line for line in lines[::-1][:count] if line.chrf[1] > line.chrf[0]]
    return tuple(worse), tuple(better)
