"""What a training run can be told. Each default stands here and nowhere else."""

import dataclasses
import math
import sys
from typing import Literal

from keras_transformer.config import PRESETS, TransformerConfig
from keras_transformer.model_directory import ModelDirectory
from keras_transformer.text.tokenization import TokenizerConfig
from keras_transformer.training.data_config import BatchConfig, DataConfig, at_least, recorded

#: Recorded options that a resumed run may change. Options that are not recorded may change, too: see `record`.
_CHANGEABLE = ("recipe.max_time", "recipe.patience", "recipe.keep_checkpoints", "recipe.checkpoint_every")
#: Those that decide the number of steps. With a cosine schedule, which ends at the last step, they may not change.
_STEPS = ("recipe.epochs", "recipe.max_steps")
#: Fields of `TransformerConfig` that the tokenizer decides.
_FROM_TOKENIZER = {"vocab_size", "source_vocab_size", "share_embeddings", "pad_id", "bos_id", "eos_id"}


#: Default passes over the training pairs, of a large and at most of a small corpus.
_EPOCHS, _MOST_EPOCHS = 10, 100
#: Updates that a small corpus is repeated for, from scratch and in fine-tuning.
_LEAST_STEPS, _LEAST_STEPS_OF_FINE_TUNING = 2000, 500


_ModelFields = dataclasses.make_dataclass(
    "_ModelFields",
    [
        (field.name, field.type if type(None) in getattr(field.type, "__args__", ()) else field.type | None, None)
        for field in dataclasses.fields(TransformerConfig)
        if field.name not in _FROM_TOKENIZER
    ],
    namespace={"__doc__": TransformerConfig.__doc__},  # The help of the options.
    frozen=True,
    kw_only=True,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(_ModelFields):
    """A preset, and what to change in it: every field of `TransformerConfig` but the vocabulary's.

    Args:
        preset: what the other options of the model are where they are not given: `tiny` (2 layers, d_model 128, 4
            heads, d_ff 512), `base` (6 layers, d_model 512, 8 heads, d_ff 2048), `big` (6 layers, d_model 1024, 16
            heads, d_ff 4096, dropout 0.3), or a row of the paper's Table 3, such as `table3-B-dk16`.

    Raises:
        ValueError: naming everything that is wrong.
    """

    preset: str = "tiny"

    def __post_init__(self):
        if self.preset not in PRESETS:
            raise ValueError(f"`model.preset` must be one of {sorted(PRESETS)}. Received: preset={self.preset!r}")
        self.transformer(vocab_size=1000)  # To find what is wrong before any work is done.

    def transformer(self, **vocabulary) -> TransformerConfig:
        """The model's configuration.

        Args:
            **vocabulary: the fields that the tokenizer decides.

        Returns:
            A `TransformerConfig`.
        """
        changes = {k: v for k, v in dataclasses.asdict(self).items() if k != "preset" and v is not None}
        return TransformerConfig.preset(self.preset, **changes, **vocabulary)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeConfig:
    """How the weights are learnt.

    The paper's recipe (§5) is `warmup_steps=4000` and `weights="average"`, with the other options left as they are. By
    default the warm-up is shorter in runs of fewer than 40,000 steps.

    Args:
        epochs: passes over the training pairs. Default: 10; more of a small corpus, until they make 2,000 updates (500
            with `init_from`), at most 100.
        max_steps: updates at most. Default: no limit but `epochs`.
        max_time: minutes of training at most, those before a resumption counted; the run then ends as at `max_steps`.
            Default: no limit.
        schedule: how the learning rate falls after its linear rise: with the inverse square root of the step, as
            the paper's, or as a cosine to zero at the last step that `epochs` and `max_steps` allow.
        warmup_steps: updates until the learning rate's peak. Default: a tenth of the run, at most the paper's 4,000.
        peak_learning_rate: learning rate at the peak. Default: d_model^-0.5 · warmup_steps^-0.5, as in the paper, where
            fewer than 2,000 steps count as 2,000; half of that with `init_from` (fine-tuning).
        label_smoothing: ε of label smoothing.
        precision: dtype policy of the training.
        validate_every: updates between validations. Default: an epoch.
        checkpoint_every: updates between checkpoints, besides one at each validation.
        keep_checkpoints: number of latest checkpoints to keep, besides the best. Each is thrice the model's size.
        patience: stop after so many validations without a better one. Default: never.
        best_by: what a better validation is, for `patience` and `weights`: a lower loss, or a higher BLEU.
        bleu_sentences: validation pairs, the first ones, that are translated at each validation, greedily, and
            scored with sacreBLEU. 0: none.
        weights: which weights the finished model has: those of the best validation, the last, or the mean
            of the kept checkpoints (the paper's: of 5, big 20).
        moving_average: momentum, such as 0.999, of an exponential moving average of the weights, which is then
            what is validated and what the finished model has. Default: none.
        seed: of weights, dropout and the order of the data, in [0, 2**32).
        xla: compile with XLA. Default: on one device yes, under a strategy of several no.
        steps_per_execution: updates between two looks at the loss, the clock and signals, so that an accelerator does
            not wait for them. `max_steps`, `validate_every`, `checkpoint_every` and an epoch are rounded up to a
            multiple of it. It must be 1 for several workers.

    Raises:
        ValueError: naming the argument that is out of range.
    """

    epochs: int | None = None
    max_steps: int | None = None
    max_time: float | None = None
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    warmup_steps: int | None = None
    peak_learning_rate: float | None = None
    label_smoothing: float = 0.1
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
        """Steps, rounded up to a multiple of `steps_per_execution`.

        Args:
            steps: updates.
        """
        return -(-steps // self.steps_per_execution) * self.steps_per_execution

    def total_steps(self, epoch: int, is_fine_tuning: bool = False) -> int:
        """Updates of the whole run.

        Args:
            epoch: updates of one pass over the training pairs.
            is_fine_tuning: whether the run begins with a trained model.
        """
        least = _LEAST_STEPS_OF_FINE_TUNING if is_fine_tuning else _LEAST_STEPS
        epochs = self.epochs or min(max(_EPOCHS, -(-least // epoch)), _MOST_EPOCHS)
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
        for name in ("max_time", "peak_learning_rate"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"`label_smoothing` must be in [0, 1). Received: {self.label_smoothing}")
        if self.moving_average is not None and not 0 < self.moving_average < 1:
            raise ValueError(f"`moving_average` must be in (0, 1). Received: moving_average={self.moving_average}")
        if self.moving_average is not None and self.weights == "average":
            raise ValueError("`weights` must not be 'average' with `moving_average`: one average is enough")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(BatchConfig, DataConfig):
    """One training run; besides its own options it has those of `DataConfig` and `BatchConfig`.

    Args:
        output: the model directory to write.
        overwrite: replace the model or the other run that lies there.
        prepared: folder written by `keras-transformer prepare`, instead of `dataset` or `source`. It fixes the options
            of the data and the `tokenizer`.
        init_from: model directory to begin with (fine-tuning); the model and the tokenizer are then
            that directory's, and `model` and `tokenizer` are not to be given.
        devices: devices to train on, such as `GPU:0,GPU:1` or `CPU:0,CPU:1`. Default: all GPUs, or the CPU.
        tokens_per_device: subwords of the longer side that a device takes at once, a row more or less; what is beyond
            it of a batch is done in several passes before the weights are updated. It changes the memory that is
            needed and not the result but for rounding and dropout. Default: all at once.
        tokenizer: the subwords.
        model: the model.
        recipe: the training.

    Raises:
        ValueError: naming the argument that is wrong.
    """

    output: str
    overwrite: bool = False
    prepared: str | None = None
    init_from: str | None = None
    devices: str | None = None
    tokens_per_device: int | None = None
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    recipe: RecipeConfig = dataclasses.field(default_factory=RecipeConfig)

    def __post_init__(self):
        DataConfig.__post_init__(self)
        BatchConfig.__post_init__(self)
        if self.prepared:
            self._require_no_data()
        else:
            self.require_room(self.max_length)
        if self.init_from and (self.model != ModelConfig() or self.tokenizer != TokenizerConfig()):
            raise ValueError("`init_from` brings its own model and tokenizer; leave `model` and `tokenizer` out")

    def _require_no_data(self):
        default = DataConfig()
        names = [field.name for field in dataclasses.fields(default)]
        given = [name for name in names if getattr(self, name) != getattr(default, name)]
        if self.tokenizer != TokenizerConfig():
            given.append("tokenizer")
        if given:
            names = ", ".join(f"`{name}`" for name in given)
            raise ValueError(f"`prepared` brings its own data; leave {names} out. Received: prepared={self.prepared!r}")

    def require_room(self, longest: int) -> None:
        """Checks that the longest sentence has room in a batch, and on a device.

        Args:
            longest: its subwords, at most.

        Raises:
            ValueError: if it has not.
        """
        at_least(self, tokens_per_batch=longest, tokens_per_device=longest)

    def record(self) -> dict:
        """What identifies the run: everything but where it writes and on what it computes."""
        left_out = {"output", "overwrite", "devices", "tokens_per_device"}
        if self.prepared:  # They know.
            left_out |= {"tokenizer", *(field.name for field in dataclasses.fields(DataConfig))}
        return {name: value for name, value in recorded(dataclasses.asdict(self)).items() if name not in left_out}

    def check_resumable(self, directory: ModelDirectory, overwrite: bool) -> bool:
        """Whether this run was begun in a directory, to be resumed.

        Args:
            directory: the model directory.
            overwrite: start over, whatever another run has left.

        Raises:
            ModelDirectoryError: if it may not run there; see `ModelDirectory.check_resumable`.
        """
        defaults = TrainConfig(output=self.output, prepared=self.prepared).record()
        changeable = _CHANGEABLE if self.recipe.schedule == "cosine" else _STEPS + _CHANGEABLE
        return directory.check_resumable(self.record(), overwrite, defaults, changeable)

    def accumulation_steps(self, replicas: int) -> int:
        """Passes that a device makes over its share of a batch.

        Args:
            replicas: number of devices.
        """
        at_once = replicas * (self.tokens_per_device or self.tokens_per_batch)
        return -(-self.tokens_per_batch // at_once)
