"""Text to trained model directory: data, tokenizer, `fit`, evaluation. On TensorFlow or JAX."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "config": ["ModelConfig", "RecipeConfig", "TrainConfig"],
        "data_config": ["PrepareConfig"],
    },
)
