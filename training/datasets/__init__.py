"""Parallel text: TensorFlow Datasets by name, or aligned text files."""

from keras_transformer.training.datasets.pairs import Corpus, Pairs
from keras_transformer.training.datasets.text import load_text, read_pairs

__all__ = ["Corpus", "Pairs", "load_corpus", "load_text", "read_pairs"]


def load_corpus(config) -> Corpus:
    """Loads the corpus of a `DataConfig`.

    Args:
        config: a `keras_transformer.training.data_config.DataConfig`.

    Returns:
        `Corpus`.

    Raises:
        ValueError: if a file is missing, empty or in another encoding, the sides are not aligned, the TFDS name is
            unknown, or the dataset cannot be loaded.
    """
    if config.source:
        return load_text(config)
    try:
        # Text files do not need TensorFlow.
        from keras_transformer.training.datasets.by_name import load_by_name
    except ImportError as error:
        raise ValueError(
            f"`dataset` requires TensorFlow Datasets and TensorFlow ({error}). Text files (`source` and `target`) do "
            f"not. Received: dataset={config.dataset!r}"
        ) from error
    return load_by_name(config)
