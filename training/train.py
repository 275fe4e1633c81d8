"""Training as users call it. Importing this module does not import Keras, which takes many seconds."""

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.preflight import check_run


def train(config: TrainConfig) -> ModelDirectory:
    """Trains a model, or resumes the run of the same configuration.

    Some options, such as the number of epochs, may change when a run is resumed; a finished run goes on if they do.

    Args:
        config: the run.

    Returns:
        The finished model directory.

    Raises:
        ValueError: if the data, the directory or the options cannot be used; nothing is left behind.
        Interrupted: if the process was told to stop; a checkpoint is saved.
        Diverged: if the loss is no number or has run away.
        WorkerLost: if another worker ends before its time.
    """
    check_run(config)
    from keras_transformer.training.run import run

    return run(config)
