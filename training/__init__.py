"""Training: from parallel text to a model directory, with Keras `fit` on TensorFlow or JAX."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "averaging": ["average"],
        "config": ["ModelConfig", "RecipeConfig", "TrainConfig"],
        "data.prepare": ["prepare"],
        "data_config": ["PrepareConfig"],
        "start": ["train"],
    },
)
