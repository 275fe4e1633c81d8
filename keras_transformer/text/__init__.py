"""Tokenization, text files, batching, translation, scoring and evaluation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "evaluation": ["Scores", "evaluate", "score"],
        "keras_translator": ["KerasTranslator", "ModelTranslator"],
        "scorer": ["PairScore", "Scorer"],
        "tokenization": ["Tokenizer", "TokenizerConfig"],
        "translator": ["Translation", "Translator"],
    },
)
