"""The start of a training. Options and files are checked before the slow import of Keras and its backend."""

from collections.abc import Sequence
from pathlib import Path

from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.storage.token_directory import TokenDirectory
from keras_transformer.text.files import readable
from keras_transformer.text.tokenization import Tokenizer
from keras_transformer.training.config import TrainConfig
from keras_transformer.training.datasets import check_text
from keras_transformer.training.resume import check_resumable


def check_run(config: TrainConfig) -> None:
    """Checks that a run can start or resume.

    Args:
        config: the run.

    Raises:
        ValueError: if `output` cannot be used, an input is missing or unreadable, the text files are not aligned, or
            subwords cannot be sampled from the given tokenizers.
    """
    directory = ModelDirectory(config.output)
    if config.init_from and directory.path.resolve() == Path(config.init_from).resolve():
        raise ValueError(f"`output` must be another directory than `init_from`. Received: output={config.output}")
    resuming = check_resumable(config, directory, config.overwrite)
    if config.init_from:
        ModelDirectory(config.init_from).require_finished()
    if config.prepared:
        splits = TokenDirectory(config.prepared).train_splits
        config.check_prepared([name for split in splits if (name := split.partition(".")[2])])
    _check_sampling(config)
    for path in config.files:
        with readable(path):
            pass
    if not resuming:
        check_text(config)


def _check_sampling(config):
    """Checks that subwords can be sampled from the tokenizers of `init_from` or `prepared`. New ones are BPE models."""
    path, options = config.prepared or config.init_from, config.augmentation
    rates = options.source_sampling, options.target_sampling
    if path and any(rates):
        models = ModelDirectory(path).tokenizer_models()
        for model, rate in zip((models[0], models[-1]), rates, strict=True):
            if rate and not Tokenizer(model).is_bpe:
                raise ValueError(f"Subword sampling requires a BPE tokenizer. Received: the tokenizer of {path}")


def train(
    config: TrainConfig, *, callbacks: Sequence | None = None, loss=None, metrics: Sequence | None = None, model=None
) -> ModelDirectory:
    """Trains a model, or resumes the unfinished run of the same configuration.

    Some options, such as the number of epochs, may change. A finished run is then trained further.

    A loss or a metric of your own must be known to Keras: a class or function with
    `keras.saving.register_keras_serializable`. To resume, give the same model, loss and metrics.

    Args:
        config: the run.
        callbacks: Keras callbacks. They run after the BLEU of a validation is known, and before a checkpoint is saved.
            An epoch of theirs is the time between two validations. If one sets `model.stop_training`, the run is
            validated and finished.
        loss: a loss as in `keras.Model.compile`, instead of label-smoothed cross-entropy. It gets labels
            `(batch, length)`, in float32, and logits `(batch, length, vocab_size)`, and has one value per token. Its
            reduction must be the default of Keras, so that it is the mean over the tokens of a batch.
        metrics: metrics as in `keras.Model.compile`, besides perplexity and token accuracy. They get the sample
            weights, which are 0 at padding.
        model: a `Transformer`, instead of that of `config.model`. Training starts from its weights, on a copy. Its
            vocabularies must be those of the tokenizers, and its dtype policy that of `config.recipe.precision`.

    Returns:
        The finished model directory.

    Raises:
        ValueError: if the data, the directory, an option or another argument is invalid. No files are left behind.
        Interrupted: if a signal stopped the process. A checkpoint is saved.
        Diverged: if the loss or a weight is NaN, infinite or too large.
        WorkerLost: if another worker stops.
        WorkerStopped: if a process that prepares data has stopped.

    Example:

        train(TrainConfig(output="runs/en-de", source="train.en", target="train.de"))
    """
    check_run(config)
    from keras_transformer.training.given import Given, load_callbacks
    from keras_transformer.training.run import run

    given = Given(model, loss, metrics or (), callbacks or ())
    given.check(config)
    return run(config, given._replace(callbacks=[*load_callbacks(config.recipe.callbacks), *given.callbacks]))
