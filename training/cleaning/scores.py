"""The filter by score: pairs of which one side says little about the other are removed."""

import itertools
import math
import sys
import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.counting import counted
from keras_transformer.evaluation.scorer import LikelihoodScorer
from keras_transformer.training.cleaning.config import CleaningConfig

#: Fraction of the validation pairs with a lower score than the default of `min_score`.
_BELOW = 0.02
#: Number of validation pairs that are scored to find it.
_MOST_VALIDATION = 5_000

Pair = tuple[str, str]


class ScoreFilter:
    """Finds pairs with low scores.

    The score of a pair is log P(target | source) - log P(target | another source), per token: the pointwise mutual
    information of the two sides, estimated with one other sentence. It is near 0 for sentences that do not belong
    together, however usual or unusual each of them is. With models of both directions, it is the smaller of the two.

    Args:
        config: a `CleaningConfig` with a `model`.
        validation: good translations, for the default of `min_score`.

    Raises:
        ValueError: if a model cannot be loaded, or the default of `min_score` cannot be found.

    Reference:
        Church & Hanks 1990, "Word Association Norms, Mutual Information, and Lexicography".
    """

    def __init__(self, config: CleaningConfig, validation: Iterable[Pair]):
        self._scorers = [LikelihoodScorer(path) for path in (config.model, config.reverse_model) if path]
        self.min_score = self._default_min_score(validation) if config.min_score is None else config.min_score

    def removes(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Bool `(pairs,)`: whether each pair is removed."""
        return self._scores(pairs) < self.min_score

    def _default_min_score(self, validation):
        has_text = ((source, target) for source, target in validation if source.strip() and target.strip())
        pairs = list(itertools.islice(has_text, _MOST_VALIDATION))
        if not pairs:
            raise ValueError("`cleaning.min_score` must be given if there are no validation pairs")
        score = float(np.quantile(self._scores(pairs), _BELOW, method="lower"))
        if not math.isfinite(score):
            raise ValueError(f"`cleaning.min_score` must be given: the validation pairs have scores of {score}")
        print(f"cleaning.min_score: {score:.4g}, from {counted(len(pairs), 'validation pair')}", file=sys.stderr)
        return score

    def _scores(self, pairs):
        # Another pair for each, far from it, since neighbours may be alike. The empty one serves a pair that is alone.
        others = [*pairs, ("", "")]
        half = len(others) // 2
        others = [*others[half:], *others[:half]][: len(pairs)]
        differences = []
        for scorer, (given, scored) in zip(self._scorers, ((0, 1), (1, 0)), strict=False):
            texts = [pair[scored] for pair in pairs]
            right, wrong = (_log_probs(scorer, [pair[given] for pair in each], texts) for each in (pairs, others))
            differences.append(right - wrong)
        return np.min(differences, axis=0)


def _log_probs(scorer, source, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # The score of a long pair is that of its beginning.
        return np.array([score.mean_log_prob for score in scorer.score(source, target)])
