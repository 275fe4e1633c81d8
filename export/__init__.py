"""Verified exports to SavedModel, ONNX, CTranslate2 and Hugging Face, their clients, and imports of other models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "config": ["ExportConfig"],
        "ctranslate2.translator": ["CTranslate2Translator"],
        "id_models": ["export_model"],
        "interop.torch": ["import_torch_transformer"],
        "load": ["load_translator"],
        "marian.importer": ["import_marian"],
        "onnx.translator": ["OnnxTranslator"],
        "pipeline": ["export"],
        "saved_model.translator": ["SavedModelTranslator"],
    },
)
