"""Soft alignment of the subwords of a sentence with those of its translation."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_WORD = re.compile(r"\w+|[^\w\s]")
#: A part of a text: its begin and its end.
Span = tuple[int, int]


class Alignment(NamedTuple):
    """Which subwords of a sentence correspond to which subwords of its translation.

    Attributes:
        source: the characters of the sentence that each source subword covers, `(begin, end)`.
        target: the characters of the translation that each target subword covers, `(begin, end)`.
        weights: float32 `(len(target), len(source))`. Larger weights are more likely correspondences. Each column sums
            to 1.
    """

    source: list[Span]
    target: list[Span]
    weights: np.ndarray

    def between(self, source: Sequence[Span], target: Sequence[Span]) -> np.ndarray:
        """Sums the weights of larger units, such as words.

        Args:
            source: `(begin, end)` of each unit of the sentence.
            target: `(begin, end)` of each unit of the translation.

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
    """Aligns words and signs by their relative position. For runtimes that do not return attention weights."""
    source, target = ([word.span() for word in _WORD.finditer(text)] for text in (sentence, translation))
    columns, rows = ((np.arange(len(spans)) + 0.5) / max(len(spans), 1) for spans in (source, target))
    weights = np.exp(-10.0 * np.abs(rows[:, None] - columns[None, :]))
    return from_attention(weights, source, target)


def _shares(parts: Sequence[Span], units: Sequence[Span]) -> np.ndarray:
    """The share of each part that lies in each unit, `(len(parts), len(units))`.

    A part without characters, such as the first bytes of a character, counts as the character after it.
    """
    begins, ends = np.array(parts, dtype=int).reshape(-1, 2).T[..., None]
    ends = np.maximum(ends, begins + 1)
    unit_begins, unit_ends = np.array(units, dtype=int).reshape(-1, 2).T
    overlap = np.minimum(ends, unit_ends) - np.maximum(begins, unit_begins)
    return np.maximum(overlap, 0) / (ends - begins)
