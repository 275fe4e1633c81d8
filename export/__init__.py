"""Verified exports to SavedModel, ONNX, CTranslate2 and Hugging Face, their clients, and imports of other models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
