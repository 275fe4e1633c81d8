"""Model directory to SavedModel and ONNX, proven equal, and their small clients."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "load": ["load_translator"],
        "onnx_translator": ["OnnxTranslator"],
        "saved_model_translator": ["SavedModelTranslator"],
    },
)
