"""Training: from parallel text to a model directory, with Keras `fit` on TensorFlow or JAX."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
