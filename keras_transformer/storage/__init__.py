"""Files: model directories, token directories, records, and writing without loss. It imports no Keras."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
