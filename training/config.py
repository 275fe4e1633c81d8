"""Options of a training run. Their defaults are defined here only."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keras_transformer.checks import at_least, fields, one_of, require
from keras_transformer.config import PRESETS, TransformerConfig
from keras_transformer.text.tokenization import TokenizerConfig
from keras_transformer.training.data_config import (
    LANGUAGES,
    AugmentationConfig,
    BatchConfig,
    DataConfig,
    recorded,
)
from keras_transformer.training.mixture_config import problems_of_stages
from keras_transformer.training.recipe_config import RecipeConfig

#: Fields of `TransformerConfig` that the tokenizer determines.
_FROM_TOKENIZER = {"vocab_size", "source_vocab_size", "share_embeddings", "pad_id", "bos_id", "eos_id"}


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
        preset: named size, which sets all options of the model; single options override it. `tiny` (2 layers, d_model
            128, 4 heads, d_ff 512), `base` (6 layers, d_model 512, 8 heads, d_ff 2048), `big` (6 layers, d_model 1024,
            16 heads, d_ff 4096, dropout 0.3), `student-tiny` and `student-base` (6 encoder layers, 2 decoder layers,
            d_model 256 and 512, d_ff 1536 and 2048, 8 heads), or a row of the paper's Table 3, such as `table3-B-dk16`.
            Unless stated, a preset has dropout 0.1 (attention and activations: 0), ReLU, biases, norms after the
            residual sums, interleaved sinusoidal positions, scaled embeddings, and no bias of the logits.

    Raises:
        ValueError: if an option is invalid. The message lists all problems.
    """

    preset: str = "tiny"

    def __post_init__(self):
        require(one_of(sorted(PRESETS), **{"model.preset": self.preset}))
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
        if self.augmentation.is_used or self.corpora:
            self._require_packing()
        if self.init_from and (self.model != ModelConfig() or self.tokenizer != TokenizerConfig()):
            raise ValueError(
                "`model` and `tokenizer` must not be given with `init_from`, which contains both. "
                f"Received: init_from={self.init_from!r}"
            )

    def _require_packing(self):
        if self.num_buckets is not None:
            raise ValueError(
                "`num_buckets` must not be given with `augmentation` or several corpora, which require packing. "
                f"Received: num_buckets={self.num_buckets}"
            )

    def problems_of_mixture(self) -> list[str]:
        """Lists what is wrong with the options of several corpora and of the stages. Prepared corpora are unknown."""
        names = None if self.prepared else list(self.corpora or {})
        return super().problems_of_mixture() + problems_of_stages(self.stages or [], names)

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
        require(at_least(longest, **fields(self, "tokens_per_batch", "tokens_per_device")))

    def check_prepared(self, names: Sequence[str]) -> None:
        """Checks the options that depend on the prepared corpora.

        Args:
            names: names of several corpora; empty for one.

        Raises:
            ValueError: if a stage is invalid, or several corpora are not packed. The message lists all problems of the
                stages.
        """
        if names:
            self._require_packing()
        require(problems_of_stages(self.stages or [], names), of="Options of `stages`")

    def record(self) -> dict:
        """The options that identify the run: not the output, devices and languages, nor those of prepared data."""
        left_out = {"output", "overwrite", "devices", "tokens_per_device"}
        if self.prepared:  # The prepared folder records these options.
            left_out |= {"tokenizer", *(field.name for field in dataclasses.fields(DataConfig))}
        return {name: value for name, value in recorded(dataclasses.asdict(self)).items() if name not in left_out}

    def accumulation_steps(self, replicas: int) -> int:
        """Number of micro-batches per training step, with gradient accumulation.

        Args:
            replicas: number of devices.
        """
        at_once = replicas * (self.tokens_per_device or self.tokens_per_batch)
        return -(-self.tokens_per_batch // at_once)
