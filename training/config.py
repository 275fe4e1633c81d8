"""Options of a training run. Their defaults are defined here only."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any, Literal

from keras_transformer.config import PRESETS, TransformerConfig
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.text.tokenization import TokenizerConfig
from keras_transformer.training.data_config import (
    LANGUAGES,
    AugmentationConfig,
    BatchConfig,
    DataConfig,
    at_least,
    recorded,
)
from keras_transformer.training.mixture_config import problems_of_stages

#: Recorded options that may change when a run is resumed. Options that are not recorded may always change.
_CHANGEABLE = ("recipe.max_time", "recipe.patience", "recipe.keep_checkpoints", "recipe.checkpoint_every")
#: Options that set the number of steps. They may change too, except with a cosine schedule, which depends on it.
_STEPS = ("recipe.epochs", "recipe.max_steps")
#: Fields of `TransformerConfig` that the tokenizer determines.
_FROM_TOKENIZER = {"vocab_size", "source_vocab_size", "share_embeddings", "pad_id", "bos_id", "eos_id"}


#: Default epochs, and the maximum that small corpora get by default.
_EPOCHS, _MAX_EPOCHS = 10, 100
#: Small corpora get more epochs, up to this number of updates: from scratch, and in fine-tuning.
_MIN_STEPS, _MIN_FINE_TUNING_STEPS = 2000, 500


def _optional(kind: Any):
    """A type that allows `None`."""
    return kind if type(None) in getattr(kind, "__args__", ()) else kind | None


_ModelFields = dataclasses.make_dataclass(
    "_ModelFields",
    [
        (field.name, _optional(field.type), None)
        for field in dataclasses.fields(TransformerConfig)
        if field.name not in _FROM_TOKENIZER
    ],
    namespace={"__doc__": TransformerConfig.__doc__},  # The help of the options.
    frozen=True,
    kw_only=True,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(_ModelFields):
    """Size of the model: a preset, and changes to it.

    Every field of `TransformerConfig` is an option, except those of the vocabulary.

    Args:
        preset: values of the model options that are not given: `tiny` (2 layers, d_model 128, 4 heads, d_ff 512),
            `base` (6 layers, d_model 512, 8 heads, d_ff 2048), `big` (6 layers, d_model 1024, 16 heads, d_ff 4096,
            dropout 0.3), `student-tiny` and `student-base` (6 encoder layers, 2 decoder layers, d_model 256 and 512,
            d_ff 1536 and 2048, 8 heads), or a row of the paper's Table 3, such as `table3-B-dk16`. Unless stated, a
            preset has dropout 0.1 (attention and activations: 0), ReLU, biases, norms after the residual sums,
            interleaved sinusoidal positions, scaled embeddings, and no bias of the logits.

    Raises:
        ValueError: if an option is invalid. The message lists all problems.
    """

    preset: str = "tiny"

    def __post_init__(self):
        if self.preset not in PRESETS:
            raise ValueError(f"`model.preset` must be one of {sorted(PRESETS)}. Received: preset={self.preset!r}")
        self.transformer(vocab_size=1000)  # Validates the options before the tokenizer exists.

    def transformer(self, **vocabulary) -> TransformerConfig:
        """The model's configuration.

        Args:
            **vocabulary: the fields that the tokenizer determines.

        Returns:
            A `TransformerConfig`.
        """
        changes = {k: v for k, v in dataclasses.asdict(self).items() if k != "preset" and v is not None}
        return TransformerConfig.preset(self.preset, **changes, **vocabulary)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeConfig:
    """Optimization of the model.

    The paper's recipe (§5) is `warmup_steps=4000` and `weights="average"`, with defaults for the other options. The
    default warm-up is shorter if the run has fewer than 40,000 steps.

    Args:
        epochs: passes over the training pairs. Default: 10. Small corpora get more, up to 100, to reach 2,000 updates
            (500 with `init_from`).
        max_steps: maximum number of updates. Default: set by `epochs` alone.
        max_time: maximum training time in minutes, including the time before a resumption. The run then finishes
            as at `max_steps`. Default: no limit.
        schedule: decay of the learning rate after linear warm-up: `inverse_sqrt` (of the step, as in the paper), or
            `cosine` to zero at the last step.
        warmup_steps: updates until the learning rate peaks. Default: a tenth of the run, at most 4,000 (the paper's).
        peak_learning_rate: learning rate at the end of the warm-up. Default: d_model^-0.5 · w^-0.5, as in the paper,
            where w is `warmup_steps` but at least 2,000; half of that with `init_from` (fine-tuning).
        label_smoothing: ε of label smoothing.
        r_drop: α of R-Drop: each pair is trained on twice with different dropout, and the difference of the two
            predictions is part of the loss. The paper uses 5 for translation. A step takes about twice the time. 0: no
            R-Drop.
        weight_decay: decoupled weight decay of matrices, as in AdamW: each update subtracts
            `weight_decay * learning rate * weight`. 0: none.
        clip_norm: maximum global norm of the gradient. Larger gradients are scaled down. Default: no clipping.
        precision: Keras dtype policy of the training.
        validate_every: updates between validations. Default: one epoch.
        checkpoint_every: updates between checkpoints. Every validation writes one too.
        keep_checkpoints: number of latest checkpoints to keep. The best one is also kept. Each takes three times the
            size of the model.
        patience: stop after this number of validations without improvement. Default: never.
        best_by: criterion of the best validation, for `patience` and `weights`: lower loss, or higher BLEU.
        bleu_sentences: number of validation pairs, from the first, for BLEU. Each validation translates them with
            greedy search and scores them with sacreBLEU. 0: no BLEU.
        weights: weights of the finished model: those of the best validation, the last ones, or the average of the kept
            checkpoints (the paper averages 5, for big models 20).
        moving_average: momentum, such as 0.999, of an exponential moving average of the weights. Validations and
            the finished model use the average. Default: none.
        seed: seed of weights, dropout and data order, in [0, 2**32).
        xla: compile with XLA. Default: true on one device, false on several TensorFlow devices.
        steps_per_execution: Keras `steps_per_execution`: training steps run between host callbacks. `max_steps`,
            `validate_every`, `checkpoint_every` and the length of an epoch are rounded up to a multiple. Must be 1
            with several workers.

    Raises:
        ValueError: if an option is out of range.
    """

    epochs: int | None = None
    max_steps: int | None = None
    max_time: float | None = None
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    warmup_steps: int | None = None
    peak_learning_rate: float | None = None
    label_smoothing: float = 0.1
    r_drop: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    validate_every: int | None = None
    checkpoint_every: int = 1000
    keep_checkpoints: int = 5
    patience: int | None = None
    best_by: Literal["loss", "bleu"] = "loss"
    bleu_sentences: int = 0
    weights: Literal["best", "last", "average"] = "best"
    moving_average: float | None = None
    seed: int = 1
    xla: bool | None = None
    steps_per_execution: int = 1

    def round_to_execution(self, steps: int) -> int:
        """Rounds a number of steps up to a multiple of `steps_per_execution`.

        Args:
            steps: number of updates.
        """
        return -(-steps // self.steps_per_execution) * self.steps_per_execution

    def total_steps(self, epoch: int, is_fine_tuning: bool = False) -> int:
        """Number of updates of the run.

        Args:
            epoch: updates in one pass over the training pairs.
            is_fine_tuning: whether the run starts from a trained model.
        """
        least = _MIN_FINE_TUNING_STEPS if is_fine_tuning else _MIN_STEPS
        epochs = self.epochs or min(max(_EPOCHS, -(-least // epoch)), _MAX_EPOCHS)
        return self.round_to_execution(min(epochs * epoch, self.max_steps or sys.maxsize))

    @property
    def seconds(self) -> float:
        """`max_time` in seconds."""
        return math.inf if self.max_time is None else 60.0 * self.max_time

    def __post_init__(self):
        at_least(self, epochs=1, max_steps=1, warmup_steps=1, validate_every=1, checkpoint_every=1, patience=1)
        at_least(self, steps_per_execution=1, keep_checkpoints=2, bleu_sentences=1 if self.best_by == "bleu" else 0)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"`seed` must be in [0, 2**32). Received: seed={self.seed}")
        at_least(self, r_drop=0, weight_decay=0)
        for name in ("max_time", "peak_learning_rate", "clip_norm"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1). Received: label_smoothing={self.label_smoothing}")
        if self.moving_average is not None and not 0 < self.moving_average < 1:
            raise ValueError(f"`moving_average` must be in (0, 1). Received: moving_average={self.moving_average}")
        if self.moving_average is not None and self.weights == "average":
            raise ValueError(
                "`weights` must not be 'average' with `moving_average`. "
                f"Received: weights={self.weights!r}, moving_average={self.moving_average}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(BatchConfig, DataConfig):
    """Options of a training run.

    The options of the data and of the batches are included; `keras-transformer train --help=all` explains them.

    Args:
        output: the model directory to write.
        overwrite: replace an existing model or run in `output`.
        prepared: folder written by `keras-transformer prepare`, instead of `dataset` or `source`. Options of the data
            and of the tokenizer are then not allowed, except the languages.
        init_from: model directory to fine-tune. Its model and tokenizer are used; options of `model` and `tokenizer`
            are then not allowed.
        devices: devices to train on, such as `GPU:0,GPU:1` or `CPU:0,CPU:1`. Default: all GPUs, or the CPU.
        tokens_per_device: micro-batch size per device, in tokens of the longer side, rounded to whole rows. Larger
            batches use gradient accumulation, which saves memory. Results differ only by rounding and dropout.
            Default: no accumulation.
        tokenizer: tokenizer options
        model: model options (defaults: see --model.preset)
        augmentation: random changes of the training text
        recipe: training options

    Raises:
        ValueError: if an option is invalid.
    """

    output: str
    overwrite: bool = False
    prepared: str | None = None
    init_from: str | None = None
    devices: str | None = None
    tokens_per_device: int | None = None
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    augmentation: AugmentationConfig = dataclasses.field(default_factory=AugmentationConfig)
    recipe: RecipeConfig = dataclasses.field(default_factory=RecipeConfig)

    def __post_init__(self):
        DataConfig.__post_init__(self)
        BatchConfig.__post_init__(self)
        if self.prepared:
            self._require_no_data()
        else:
            self.require_room(self.max_length)
        if (self.augmentation.is_used or self.corpora) and self.num_buckets is not None:
            raise ValueError(
                "`num_buckets` must not be given with `augmentation` or `corpora`, which require packing. "
                f"Received: num_buckets={self.num_buckets}"
            )
        if not self.prepared:
            self.check_stages(list(self.corpora or {}))
        if self.init_from and (self.model != ModelConfig() or self.tokenizer != TokenizerConfig()):
            raise ValueError(
                "`model` and `tokenizer` must not be given with `init_from`, which contains both. "
                f"Received: init_from={self.init_from!r}"
            )

    def _require_no_data(self):
        default = DataConfig()
        names = [field.name for field in dataclasses.fields(default) if field.name not in LANGUAGES]
        given = [name for name in names if getattr(self, name) != getattr(default, name)]
        if self.tokenizer != TokenizerConfig():
            given.append("tokenizer")
        if given:
            names = ", ".join(f"`{name}`" for name in given)
            raise ValueError(
                f"{names} must not be given with `prepared`, which contains the data. "
                f"Received: prepared={self.prepared!r}"
            )

    def require_room(self, longest: int) -> None:
        """Checks that the longest sentence fits into a batch and into a micro-batch.

        Args:
            longest: maximum number of tokens in a sentence.

        Raises:
            ValueError: if it does not fit.
        """
        at_least(self, tokens_per_batch=longest, tokens_per_device=longest)

    def check_stages(self, names: Sequence[str]) -> None:
        """Checks the stages.

        Args:
            names: names of the corpora.

        Raises:
            ValueError: if a stage is invalid. The message lists all problems.
        """
        problems = problems_of_stages(self.stages or [], names)
        if problems:
            raise ValueError(f"Options of `stages`: {'; '.join(problems)}")

    def record(self) -> dict:
        """The options that identify the run. Output paths and devices are not part of it."""
        left_out = {"output", "overwrite", "devices", "tokens_per_device"}
        if self.prepared:  # The prepared folder records these options.
            left_out |= {"tokenizer", *(field.name for field in dataclasses.fields(DataConfig))}
        return {name: value for name, value in recorded(dataclasses.asdict(self)).items() if name not in left_out}

    def check_resumable(self, directory: ModelDirectory, overwrite: bool) -> bool:
        """Whether the directory contains this run, to be resumed.

        Args:
            directory: the model directory.
            overwrite: start over and replace an existing run.

        Raises:
            ModelDirectoryError: if the run cannot use the directory; see `ModelDirectory.check_resumable`.
        """
        defaults = TrainConfig(output=self.output, prepared=self.prepared).record()
        changeable = _CHANGEABLE if self.recipe.schedule == "cosine" else _STEPS + _CHANGEABLE
        return directory.check_resumable(self.record(), overwrite, defaults, changeable)

    def accumulation_steps(self, replicas: int) -> int:
        """Number of micro-batches per training step, with gradient accumulation.

        Args:
            replicas: number of devices.
        """
        at_once = replicas * (self.tokens_per_device or self.tokens_per_batch)
        return -(-self.tokens_per_batch // at_once)
