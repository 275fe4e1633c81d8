"""How a training starts: it is checked before Keras and its backend are imported, which takes many seconds."""

from pathlib import Path

from keras_transformer.model_directory import ModelDirectory
from keras_transformer.text.files import readable
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.data.token_directory import TokenDirectory
from keras_transformer.training.datasets import load_text


def check_run(config: TrainConfig) -> None:
    """Checks that a run can begin or be resumed.

    Args:
        config: the run.

    Raises:
        ValueError: if `output` cannot be used, what the run begins with is missing or cannot be read, or the text files
            do not align.
    """
    directory = ModelDirectory(config.output)
    if config.init_from and directory.path.resolve() == Path(config.init_from).resolve():
        raise ValueError(f"`output` must be another directory than `init_from`. Received: {config.output}")
    resuming = config.check_resumable(directory, config.overwrite)
    if config.init_from:
        ModelDirectory(config.init_from).require_finished()
    if config.prepared:
        TokenDirectory(config.prepared).record()
    for path in (*config.source, *config.target, *config.validation_source, *config.validation_target):
        with readable(path):
            pass
    if config.source and not resuming:
        load_text(config)


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
