"""Scores of translations, comparison of models, and log probabilities of given translations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
