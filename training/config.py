"""What a training run can be told. Each default stands here and nowhere else."""

import dataclasses
import math
from typing import Literal

from keras_transformer.config import PRESETS, TransformerConfig
from keras_transformer.tokenization import TokenizerConfig

#: Fields of `TransformerConfig` that the tokenizer decides.
_FROM_TOKENIZER = {"vocab_size", "source_vocab_size", "share_embeddings", "pad_id", "bos_id", "eos_id"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the pairs come from, and which of them are used.

    Args:
        dataset: TensorFlow Datasets name of a translation dataset.
        data_dir: where TensorFlow Datasets keeps its data. Default: its own.
        reverse: translate from the dataset's second language to its first.
        train_split: TFDS split to train on.
        validation_split: TFDS split to validate on.
        source: a text file or a list of them to train on, plain or .gz, one sentence a line, instead of
            `dataset`.
        target: the same lines in the other language.
        validation_source: a text file or a list of them to validate on. Default: every hundredth line of the training
            files, 2,000 at most, is held out.
        validation_target: the same lines in the other language.
        max_length: pairs with more subwords than this on a side, the end counted, are left out.
        max_length_ratio: pairs whose sides' numbers of subwords differ by more than this factor, and
            by more than 10, are left out.
        tokens_per_batch: size of a training batch in subwords a side, padding counted, on all devices together.
        batching: how pairs are put into rows: one each, in batches of about one length (`buckets`), or several, in
            batches of one shape with hardly any padding (`packed`).
        num_buckets: of `buckets`: lengths that batches are padded to; each is one shape to compile.

    Raises:
        ValueError: naming the argument that is wrong.
    """

    dataset: str = "number_words/en_de"
    data_dir: str | None = None
    reverse: bool = False
    train_split: str = "train"
    validation_split: str = "validation"
    source: list[str] | str | None = None
    target: list[str] | str | None = None
    validation_source: list[str] | str | None = None
    validation_target: list[str] | str | None = None
    max_length: int = 256
    max_length_ratio: float = 4.0
    tokens_per_batch: int = 4096
    batching: Literal["buckets", "packed"] = "buckets"
    num_buckets: int = 4

    def __post_init__(self):
        for one, other in (("source", "target"), ("validation_source", "validation_target")):
            for name in (one, other):
                object.__setattr__(self, name, _as_list(getattr(self, name)))
            sizes = len(getattr(self, one)), len(getattr(self, other))
            if sizes[0] != sizes[1]:
                raise ValueError(f"`{one}` and `{other}` must name as many files. Received: {sizes[0]} and {sizes[1]}")
        if self.validation_source and not self.source:
            raise ValueError("`validation_source` goes with `source`; a dataset has its `validation_split`")
        _at_least(self, max_length=2, max_length_ratio=1, num_buckets=1, tokens_per_batch=self.max_length)


_ModelFields = dataclasses.make_dataclass(
    "_ModelFields",
    [
        (field.name, field.type if type(None) in getattr(field.type, "__args__", ()) else field.type | None, None)
        for field in dataclasses.fields(TransformerConfig)
        if field.name not in _FROM_TOKENIZER
    ],
    frozen=True,
    kw_only=True,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(_ModelFields):
    """A preset, and what to change in it: every field of `TransformerConfig` but the vocabulary's.

    Args:
        preset: name of the preset, such as `tiny`, `base`, `big` or `table3-B-dk16`.

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
    """How the weights are learnt. The defaults are the paper's (§5).

    Args:
        epochs: passes over the training pairs.
        max_steps: updates at most. Default: no limit but `epochs`.
        max_time: minutes of training at most, those before a resumption counted; the run then ends as at `max_steps`.
            Default: no limit.
        schedule: how the learning rate falls after its linear rise: with the inverse square root of the step, as
            the paper's, or as a cosine to zero at the last step that `epochs` and `max_steps` allow.
        warmup_steps: updates until the learning rate's peak.
        peak_learning_rate: learning rate at the peak. Default: the paper's, from `d_model`.
        label_smoothing: ε of label smoothing.
        precision: dtype policy of the training.
        validate_every: updates between validations. Default: an epoch.
        checkpoint_every: updates between checkpoints, besides one at each validation.
        keep: checkpoints that are kept, the last ones, with the best besides. Each is three times the model.
        patience: stop after so many validations without a better one. Default: never.
        best_by: what a better validation is, for `patience` and `weights`: a lower loss, or a higher BLEU.
        bleu_sentences: validation pairs, the first ones, that are translated at each validation, greedily, and
            scored with sacreBLEU. 0: none.
        weights: which weights the finished model has: those of the best validation, the last, or the mean
            of the kept checkpoints (the paper's: of 5, big 20).
        moving_average: momentum, such as 0.999, of an exponential moving average of the weights, which is then
            what is validated and what the finished model has. Default: none.
        seed: of weights, dropout and the order of the data.
        xla: compile with XLA. Default: on one device yes, under a strategy of several no.

    Raises:
        ValueError: naming the argument that is out of range.
    """

    epochs: int = 10
    max_steps: int | None = None
    max_time: float | None = None
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    warmup_steps: int = 4000
    peak_learning_rate: float | None = None
    label_smoothing: float = 0.1
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    validate_every: int | None = None
    checkpoint_every: int = 1000
    keep: int = 5
    patience: int | None = None
    best_by: Literal["loss", "bleu"] = "loss"
    bleu_sentences: int = 0
    weights: Literal["best", "last", "average"] = "best"
    moving_average: float | None = None
    seed: int = 1
    xla: bool | None = None

    @property
    def seconds(self) -> float:
        """`max_time` in seconds."""
        return math.inf if self.max_time is None else 60.0 * self.max_time

    def __post_init__(self):
        _at_least(self, epochs=1, max_steps=1, warmup_steps=1, validate_every=1, checkpoint_every=1, patience=1)
        _at_least(self, keep=2, bleu_sentences=1 if self.best_by == "bleu" else 0)
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
class TrainConfig(DataConfig):
    """One training run; besides its own options it has those of `DataConfig`.

    Args:
        output: the model directory to write.
        overwrite: replace the model or the other run that lies there.
        init_from: model directory to begin with (fine-tuning); the model and the tokenizer are then
            that directory's, and `model` and `tokenizer` are not to be given.
        devices: devices to train on, such as `GPU:0,GPU:1` or `CPU:0,CPU:1`. Default: all GPUs, or the CPU.
        tokens_per_device: subwords a side that a device takes at once, a row more or less; what is beyond
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
    init_from: str | None = None
    devices: str | None = None
    tokens_per_device: int | None = None
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    recipe: RecipeConfig = dataclasses.field(default_factory=RecipeConfig)

    def __post_init__(self):
        super().__post_init__()
        _at_least(self, tokens_per_device=self.max_length)
        if self.init_from and (self.model != ModelConfig() or self.tokenizer != TokenizerConfig()):
            raise ValueError("`init_from` brings its own model and tokenizer; leave `model` and `tokenizer` out")

    def record(self) -> dict:
        """What identifies the run: everything but where it writes and on what it computes."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in ("output", "overwrite", "devices", "tokens_per_device")
        }

    def parts(self, replicas: int) -> int:
        """Passes that a device makes over its share of a batch.

        Args:
            replicas: number of devices.
        """
        at_once = replicas * (self.tokens_per_device or self.tokens_per_batch)
        return -(-self.tokens_per_batch // at_once)


def _as_list(paths):
    return [paths] if isinstance(paths, str) else list(paths or [])


def _at_least(config, **smallest):
    for name, bound in smallest.items():
        value = getattr(config, name)
        if value is not None and value < bound:
            raise ValueError(f"`{name}` must be at least {bound}. Received: {name}={value}")
