from .length_penalty import length_penalty as length_penalty
from .search import (
    Hypotheses as Hypotheses,
    SearchInputs as SearchInputs,
    SpecialIds as SpecialIds,
    run_search as run_search,
)
from .shortlist import Shortlist as Shortlist
from .strategies import BeamSearch as BeamSearch, GreedySearch as GreedySearch, Sampling as Sampling
from .text_constraints import TextConstraints as TextConstraints
