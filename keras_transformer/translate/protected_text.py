"""Lines of which a model gets only what is language."""

import bisect
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from keras_transformer.translate.alignment import Alignment, Span, diagonal
from keras_transformer.translate.protection import ProtectedLine, Protection
from keras_transformer.translate.translation import Translation, best_first, by_rank

#: Aligns lines that were translated as they are: `(lines, translations) -> alignments`.
Align = Callable[[Sequence[str], Sequence[Translation]], Sequence[Alignment]]


class ProtectedText:
    """Lines, and what of them is translated.

    Args:
        lines: the lines.
        protection: decides what is translated.
        first_line: number of the first line.

    Attributes:
        sentences: the texts that the model gets. Most lines are such a text.
        line_numbers: the number of the line of each sentence.
    """

    def __init__(self, lines: Sequence[str], protection: Protection, first_line: int = 1):
        self._lines = lines
        self._protected = [protection.split(line) for line in lines]
        self.sentences: list[str] = []
        self.line_numbers: list[int] = []
        for number, (line, protected) in enumerate(zip(lines, self._protected, strict=True), first_line):
            sentences = [line] if protected is None else [one.text for one in protected.sentences]
            self.sentences += sentences
            self.line_numbers += [number] * len(sentences)

    @property
    def num_lines(self) -> int:
        """Number of lines."""
        return len(self._lines)

    def joined(self, translations: Sequence[Translation], n_best: int, align: Align) -> list[Translation]:
        """Makes the translation of each line from those of `sentences`. `align` is called where it is needed."""
        remaining = iter(translations)
        found = [[next(remaining) for _ in range(_count(protected))] for protected in self._protected]
        needed = [
            (sentence.text, hypothesis)
            for protected, translated in zip(self._protected, found, strict=True)
            for sentence, translation in zip(protected.sentences if protected else (), translated, strict=False)
            if sentence.needs_alignment
            for hypothesis in translation.hypotheses
        ]
        texts, hypotheses = [text for text, _ in needed], [hypothesis for _, hypothesis in needed]
        alignments = dict(zip(map(id, hypotheses), align(texts, hypotheses) if needed else (), strict=True))
        return [
            translated[0] if protected is None else _joined(protected, translated, n_best, alignments)
            for protected, translated in zip(self._protected, found, strict=True)
        ]

    def align(self, translations: Sequence[Translation], align: Align) -> list[Alignment]:
        """Aligns the lines with their translations."""
        needed = [i for i, protected in enumerate(self._protected) if _count(protected) == 1]
        lines = [
            line if p is None else p.sentences[0].text
            for line, p in zip(self._lines, self._protected, strict=True)
            if _count(p) == 1
        ]
        found = align(lines, [_unprotected(translations[i]) for i in needed]) if needed else []
        alignments = dict(zip(needed, zip(lines, found, strict=True), strict=True))
        return [
            self._aligned(i, translation, *alignments.get(i, (None, None)))
            for i, translation in enumerate(translations)
        ]

    def _aligned(self, i: int, translation, sentence, alignment) -> Alignment:
        """The alignment of a line. `alignment` is that of its only sentence."""
        line = self._lines[i]
        if alignment is None:
            return diagonal(line, translation.text)
        if self._protected[i] is None:
            return alignment
        sources, targets = [source for source, _ in translation.kept], [target for _, target in translation.kept]
        written = translation.text if translation.written is None else translation.written
        rows, columns = alignment.weights.shape
        weights = np.eye(rows + len(targets), columns + len(sources), columns - rows, dtype="float32")
        weights[:rows] = np.pad(alignment.weights, ((0, 0), (0, len(sources))))
        return Alignment(
            _moved(alignment.source, sentence, line, sources) + sources,
            _moved(alignment.target, written, translation.text, targets) + targets,
            weights,
        )


def _unprotected(translation: Translation) -> Translation:
    """What the model wrote."""
    return translation if translation.written is None else dataclasses.replace(translation, text=translation.written)


def _moved(spans: Sequence[Span], text: str, whole: str, kept: Sequence[Span]) -> list[Span]:
    """Moves parts of a text to its place in a whole text, which also contains kept parts and other white space.

    Example:

    >>> _moved([(0, 1), (1, 2)], "a.", "a X.", [(2, 3)])
    [(0, 1), (3, 4)]
    """
    inside = [i for i, character in enumerate(text) if not character.isspace()]
    is_kept = {i for begin, end in kept for i in range(begin, end)}
    places = [i for i, character in enumerate(whole) if not character.isspace() and i not in is_kept]
    if len(places) != len(inside):
        return list(spans)
    places.append(len(whole))
    result = []
    for begin, end in spans:
        first, last = bisect.bisect_left(inside, begin), bisect.bisect_left(inside, end)
        result.append((places[first], places[last - 1] + 1 if last > first else places[first]))
    return result


def _joined(protected, translated, n_best, alignments) -> Translation:
    """Puts the hypotheses of a line together. `alignments` has those that are needed, by the id of the hypothesis."""
    ranks = by_rank(translated, n_best)
    found = [protected.joined(rank, [alignments.get(id(hypothesis)) for hypothesis in rank]) for rank in ranks]
    return best_first(found, n_best)


def _count(protected: ProtectedLine | None) -> int:
    return 1 if protected is None else len(protected.sentences)
