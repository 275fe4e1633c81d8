"""The filter by score: pairs that translation models find unlikely are removed."""

import itertools
import sys
import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.text.scorer import Scorer
from keras_transformer.training.cleaning.config import CleaningConfig

#: Fraction of the validation pairs with a lower score than the default of `min_score`.
_BELOW = 0.02
#: Number of validation pairs that are scored to find it.
_MOST_VALIDATION = 5_000

Pair = tuple[str, str]


class ScoreFilter:
    """Finds pairs with low scores.

    Args:
        config: a `CleaningConfig` with a `model`.
        validation: good translations, for the default of `min_score`.

    Raises:
        ValueError: if a model cannot be loaded, or the default of `min_score` cannot be found.

    Reference:
        Junczys-Dowmunt 2018, "Dual Conditional Cross-Entropy Filtering of Noisy Parallel Corpora".
    """

    def __init__(self, config: CleaningConfig, validation: Iterable[Pair]):
        self._scorers = [Scorer(path) for path in (config.model, config.reverse_model) if path]
        self.min_score = config.min_score or self._usual(validation)

    def removes(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Bool `(pairs,)`: whether each pair is removed."""
        return self._scores(pairs) < self.min_score

    def _usual(self, validation):
        has_text = ((source, target) for source, target in validation if source.strip() and target.strip())
        pairs = list(itertools.islice(has_text, _MOST_VALIDATION))
        if not pairs:
            raise ValueError("`cleaning.min_score` must be given if there are no validation pairs")
        score = float(np.quantile(self._scores(pairs), _BELOW, method="lower"))
        if not 0 < score < 1:
            raise ValueError(f"`cleaning.min_score` must be given: the validation pairs have scores of {score}")
        print(f"cleaning.min_score: {score:.4g}, from {len(pairs):,} validation pairs", file=sys.stderr)
        return score

    def _scores(self, pairs):
        """Float `(pairs,)`: exp(-|f - r| - (f + r) / 2), with the cross-entropies per token of the models."""
        entropies = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # The score of a long pair is that of its beginning.
            for scorer, order in zip(self._scorers, ((0, 1), (1, 0)), strict=False):
                scores = scorer.score(*([pair[side] for pair in pairs] for side in order))
                entropies.append(np.array([-score.mean_log_prob for score in scores]))
        return np.exp(-abs(entropies[0] - entropies[-1]) - np.mean(entropies, axis=0))
