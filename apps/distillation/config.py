"""Options of the distillation. Their defaults are defined here only."""

import dataclasses
import functools
from pathlib import Path
from typing import Literal

from keras_transformer.checks import at_least, fields, require, same_number, within
from keras_transformer.text.files import UTF_8, canonical_encoding
from keras_transformer.text.tokenization import TokenizerConfig
from keras_transformer.training.cleaning.config import CleaningConfig
from keras_transformer.training.data_config import DataConfig
from keras_transformer.translate.batching import BATCH_SIZE, BATCH_TOKENS
from keras_transformer.translate.threads import check_threads

#: How a hypothesis is chosen.
Selection = Literal["score", "chrf", "bleu"]

#: Translations by a model need few filters.
_CLEANING = functools.partial(
    CleaningConfig,
    repair=False,
    max_characters=0,
    max_length_ratio=0.0,
    min_letters=0.0,
    markup=False,
    numbers=False,
    urls=False,
    scripts=False,
    duplicates="exact",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """Options of `keras-transformer distill`.

    Args:
        teacher: model directory of a finished training, or several separated by commas, whose models translate
            together.
        output: the folder to write.
        source: text to translate: one or more files, plain or .gz, one sentence per line.
        target: reference translations, aligned with `source` line by line, to choose among the hypotheses.
        validation_source: source text to validate on, which is not translated. Default: every hundredth pair of the
            result, at most 2,000 pairs, is held out.
        validation_target: target text, aligned with `validation_source`.
        encoding: encoding of the text files, such as `cp1252` or `utf-16`.
        overwrite: replace an earlier result in `output`. Translations of the same text by the same teacher are kept.
        runtime: runtime of the teacher: `keras`, or the name of an export. Default: `onnx_int8`; for several teachers
            `keras`.
        n_best: number of hypotheses per sentence. Default: 4 with reference translations, otherwise 1.
        select: the hypothesis to train on: the best by the `score` of the teacher, or the closest to the reference
            translation by sentence `chrf` or `bleu`. Default: `chrf` with reference translations, otherwise `score`.
        reject: fraction of the pairs to remove: those with the worst scores; see `reverse_model`.
        reverse_model: model directory of the opposite direction. The score of a pair is then the log probability per
            token of the source, given the translation. Default: the teacher's score of the translation.
        batch_size: maximum sentences per batch.
        batch_tokens: maximum source tokens per batch, including padding.
        num_threads: threads per batch. 0: all cores, divided among the parallel batches.
        parallel_batches: batches translated at the same time. Default: all cores, or 1 for Keras on a GPU or on JAX.
        max_length: maximum number of tokens on each side of a pair, including the end token. Longer pairs are removed.
        max_length_ratio: maximum ratio of the two lengths of a pair in tokens, as in `prepare`.
        cleaning: filters for the pairs, as in `prepare`. By default only copies and duplicates are removed. `model`
            requires `min_score`. `languages` uses the languages that the teacher records.
        tokenizer: options of a new tokenizer for the student. Default: the tokenizer of the teacher.

    Raises:
        ValueError: if an option is invalid.

    Reference:
        Kim & Rush 2016, "Sequence-Level Knowledge Distillation".
    """

    teacher: list[str] | str
    output: str
    source: list[str] | str
    target: list[str] | str | None = None
    validation_source: list[str] | str | None = None
    validation_target: list[str] | str | None = None
    encoding: str = UTF_8
    overwrite: bool = False
    runtime: str | None = None
    n_best: int | None = None
    select: Selection | None = None
    reject: float = 0.0
    reverse_model: str | None = None
    batch_size: int = BATCH_SIZE
    batch_tokens: int = BATCH_TOKENS
    num_threads: int = 0
    parallel_batches: int | None = None
    max_length: int = DataConfig.max_length
    max_length_ratio: float = DataConfig.max_length_ratio
    cleaning: CleaningConfig = dataclasses.field(default_factory=_CLEANING)
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)

    def __post_init__(self):
        if isinstance(self.teacher, str):
            is_one = Path(self.teacher).exists()
            object.__setattr__(self, "teacher", [self.teacher] if is_one else self.teacher.split(","))
        if not self.teacher:
            raise ValueError("`teacher` must name at least one model directory. Received: teacher=[]")
        for name in ("source", "target", "validation_source", "validation_target"):
            value = getattr(self, name)
            object.__setattr__(self, name, [value] if isinstance(value, str) else list(value or []))
        if not self.source:
            raise ValueError("`source` must name at least one file")
        require(same_number("files", **fields(self, "validation_source", "validation_target")))
        if self.target:
            require(same_number("files", **fields(self, "source", "target")))
        object.__setattr__(self, "encoding", canonical_encoding(self.encoding))
        require(
            at_least(1, n_best=self.n_best, parallel_batches=self.parallel_batches),
            at_least(0, num_threads=self.num_threads),
            within("[0, 1)", reject=self.reject),
        )
        check_threads(self.num_threads, self.parallel_batches or 1)
        object.__setattr__(self, "runtime", self.runtime or ("onnx_int8" if len(self.teacher) == 1 else "keras"))
        object.__setattr__(self, "n_best", self.n_best or (4 if self.target else 1))
        object.__setattr__(self, "select", self.select or ("chrf" if self.target else "score"))
        if self.runtime != "keras" and len(self.teacher) > 1:
            raise ValueError(f"Several teachers require the keras runtime. Received: runtime={self.runtime!r}")
        if self.select != "score" and not self.target:
            raise ValueError(f"`select` by {self.select} requires `target`. Received: select={self.select!r}")
        if self.cleaning.model and self.cleaning.min_score is None:
            raise ValueError(f"`cleaning.model` requires `cleaning.min_score`. Received: model={self.cleaning.model!r}")
        if self.reverse_model and not self.reject:
            raise ValueError(f"`reverse_model` requires `reject`. Received: reverse_model={self.reverse_model!r}")
