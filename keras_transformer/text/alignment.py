"""Soft alignment of the subwords of a sentence with those of its translation."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: A part of a text: its begin and its end.
Span = tuple[int, int]


class Alignment(NamedTuple):
    """Which subwords of a sentence correspond to which subwords of its translation.

    Attributes:
        source: the part of the sentence that each source subword covers.
        target: the part of the translation that each target subword covers.
        weights: float32 `(len(target), len(source))`. Larger weights are more likely correspondences. Those of a source
            subword sum to 1.
    """

    source: list[Span]
    target: list[Span]
    weights: np.ndarray

    def between(self, source: Sequence[Span], target: Sequence[Span]) -> np.ndarray:
        """Sums the weights of larger units, such as words.

        Args:
            source: parts of the sentence.
            target: parts of the translation.

        Returns:
            Float `(len(target), len(source))`.
        """
        return _shares(self.target, target).T @ self.weights @ _shares(self.source, source)


def from_attention(weights: np.ndarray, source: list[Span], target: list[Span]) -> Alignment:
    """Makes an alignment from cross-attention weights.

    The weights of each source subword are normalized over the target. Otherwise subwords that attract attention at
    every step, such as punctuation, would hide the others.

    Args:
        weights: float `(target_length, source_length)`, the mean over layers and heads. Rows and columns after those of
            the subwords are ignored.
        source: the part of the sentence that each source subword covers.
        target: the part of the translation that each target subword covers.
    """
    weights = weights[: len(target), : len(source)].astype("float32")
    return Alignment(source, target, weights / np.maximum(weights.sum(axis=0), 1e-9))


def diagonal(sentence: str, translation: str) -> Alignment:
    """Aligns characters by their relative position. For runtimes that do not return attention weights.

    Args:
        sentence: the sentence.
        translation: its translation.
    """
    source, target = ([(i, i + 1) for i in range(len(text))] for text in (sentence, translation))
    places = ((np.arange(len(spans)) + 0.5) / max(len(spans), 1) for spans in (source, target))
    columns, rows = places
    weights = np.exp(-10.0 * np.abs(rows[:, None] - columns[None, :]))
    return from_attention(weights, source, target)


def _shares(parts: Sequence[Span], units: Sequence[Span]) -> np.ndarray:
    """The share of each part that lies in each unit, `(len(parts), len(units))`.

    A part without characters, such as the first bytes of a character, counts as the character after it.
    """
    parts, units = (np.array(spans, dtype=int).reshape(-1, 2) for spans in (parts, units))
    ends = np.where(parts[:, 1] > parts[:, 0], parts[:, 1], parts[:, 0] + 1)
    overlap = np.minimum(ends[:, None], units[:, 1]) - np.maximum(parts[:, :1], units[:, 0])
    return np.maximum(overlap, 0) / (ends - parts[:, 0])[:, None]
