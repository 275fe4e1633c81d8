"""Models to SavedModel, ONNX and CTranslate2, proven equal, and their small clients; models of others in and out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "config": ["ExportConfig"],
        "ctranslate2_translator": ["CTranslate2Translator"],
        "models_of_ids": ["export_model"],
        "load": ["load_translator"],
        "marian": ["import_marian"],
        "torch_transformer": ["import_torch_transformer"],
        "onnx_translator": ["OnnxTranslator"],
        "saved_model_translator": ["SavedModelTranslator"],
    },
)
