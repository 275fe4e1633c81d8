"""Search for the best target: greedy and beam search, with length penalties."""

from keras_transformer.decoding.length_penalty import length_penalty
from keras_transformer.decoding.search import IMPOSSIBLE, BeamSearch, GreedySearch, Hypotheses, SpecialIds

__all__ = ["IMPOSSIBLE", "BeamSearch", "GreedySearch", "Hypotheses", "SpecialIds", "length_penalty"]
