from .comparison import (
    Comparison as Comparison,
    Difference as Difference,
    LengthGroup as LengthGroup,
    MetricComparison as MetricComparison,
    compare as compare,
)
from .scorer import LikelihoodScorer as LikelihoodScorer, PairScore as PairScore
from .scores import Scores as Scores, corpus_scores as corpus_scores, evaluate as evaluate
