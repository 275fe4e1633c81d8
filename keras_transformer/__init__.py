"""The Transformer of "Attention Is All You Need" for Keras 3: layers, models, decoding, text and training.

`import keras_transformer as kt` imports neither Keras nor a backend. The names below are imported on first use.
"""

import sys

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if "keras" in sys.modules:
    # `keras.saving.load_model` finds the classes of this package only after their import.
    import keras_transformer.saving  # noqa: F401
