"""Decoding: greedy search, beam search with length penalties, and sampling."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "length_penalty": ["length_penalty"],
        "search": ["Hypotheses", "SearchInputs", "SpecialIds", "run_search"],
        "strategies": ["BeamSearch", "GreedySearch", "Sampling"],
    },
)
