from .comparison import Comparison as Comparison, compare as compare
from .scorer import PairScore as PairScore, LikelihoodScorer as LikelihoodScorer
from .scores import Scores as Scores, evaluate as evaluate
