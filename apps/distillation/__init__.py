"""Sequence-level distillation: a teacher translates the text that a student is trained on."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
