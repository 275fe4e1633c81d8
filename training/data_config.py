"""Options of the data: the corpus and the batches. Their defaults are defined here only."""

import dataclasses

from keras_transformer.checks import at_least, fields, require, same_number, within
from keras_transformer.text.files import UTF_8, canonical_encoding
from keras_transformer.text.languages import checked_language
from keras_transformer.text.tokenization import TokenizerConfig
from keras_transformer.training.cleaning.config import CleaningConfig
from keras_transformer.training.mixture_config import CorpusConfig, StageConfig, as_list, problems_of_corpora

#: Options that name the languages. They change what a run computes only for a model of several languages.
LANGUAGES = ("source_language", "target_language")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The corpus, and the filter for its sentence pairs.

    Args:
        dataset: TensorFlow Datasets name of a translation dataset.
        data_dir: data directory of TensorFlow Datasets. Default: the directory that TensorFlow Datasets uses.
        reverse: translate from the dataset's second language to its first.
        train_split: TFDS split to train on.
        validation_split: TFDS split to validate on.
        source: source text to train on, instead of `dataset`: one or more files, plain or .gz, one sentence per line.
        target: target text, aligned with `source` line by line.
        validation_source: source text to validate on. Default: every hundredth line of the training text, at most
            2,000 lines, is held out.
        validation_target: target text, aligned with `validation_source`.
        encoding: encoding of the text files, such as `cp1252` or `utf-16`.
        source_language: code of the source language, such as `en`, for `serve`, the splitting of sentences, and the
            filter by language. Default: the language of `dataset`. With `corpora` of several pairs of languages: that
            of the validation text.
        target_language: code of the target language, such as `de`. Default: the language of `dataset`.
        corpora: several training corpora instead of `dataset` or `source`, in a YAML file: name -> options, see
            `CorpusConfig`. Without `validation_source`, the first corpus is validated on; or all, if they have several
            pairs of languages.
        max_length: maximum number of tokens on each side of a pair, including the end token. Longer pairs are removed.
        max_length_ratio: maximum ratio of the two lengths of a pair in tokens. Pairs with a larger ratio are removed if
            the lengths also differ by more than 10 tokens. Cleaning has a filter by characters, which comes first.

    Raises:
        ValueError: if an option is invalid.
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
    encoding: str = UTF_8
    source_language: str | None = None
    target_language: str | None = None
    corpora: dict[str, CorpusConfig] | None = None
    max_length: int = 256
    max_length_ratio: float = 4.0

    def __post_init__(self):
        for one, other in (("source", "target"), ("validation_source", "validation_target")):
            for name in (one, other):
                object.__setattr__(self, name, as_list(getattr(self, name)))
            require(same_number("files", **fields(self, one, other)))
        require(self.problems_of_mixture(), of="Options of `corpora` and `stages`")
        self._require_one_corpus()
        if self.validation_source and not (self.source or self.corpora):
            raise ValueError(
                "`validation_source` requires `source`; with a dataset, use `validation_split`. "
                f"Received: validation_source={self.validation_source}"
            )
        object.__setattr__(self, "encoding", canonical_encoding(self.encoding))
        if self.encoding != UTF_8 and not self.files:
            raise ValueError(f"`encoding` requires `source`. Received: encoding={self.encoding!r}")
        for name in LANGUAGES:
            object.__setattr__(self, name, checked_language(name, getattr(self, name)))
        require(at_least(2, max_length=self.max_length), at_least(1, max_length_ratio=self.max_length_ratio))

    def _require_one_corpus(self):
        """Options of one corpus would have no effect on several."""
        names = ("dataset", "reverse", "train_split")
        given = ["source"] if self.source else []
        given += [name for name in names if getattr(self, name) != getattr(DataConfig, name)]
        if self.corpora and given:
            named = ", ".join(f"`{name}`" for name in given)
            raise ValueError(f"{named} must not be given with `corpora`, which have options of that name")
        if self.source and given[1:]:
            named = ", ".join(f"`{name}`" for name in given[1:])
            raise ValueError(f"{named} must not be given with `source`, because they apply to datasets only")

    def problems_of_mixture(self) -> list[str]:
        """Lists what is wrong with the options of several corpora."""
        return problems_of_corpora(self.corpora or {})

    @property
    def holds_out(self) -> bool:
        """Whether the text to validate on is a part of a text to train on, and is held out."""
        first = next(iter(self.parts.values()), self)
        splits = {split.partition("[")[0] for split in (first.train_split, first.validation_split)}
        return not self.validation_source and (bool(first.source) or len(splits) == 1)

    @property
    def files(self) -> list[str]:
        """All text files."""
        sides = [self.source, self.target, self.validation_source, self.validation_target]
        for corpus in (self.corpora or {}).values():
            sides += [corpus.source, corpus.target]
        return [path for paths in sides for path in as_list(paths)]

    @property
    def parts(self) -> dict[str, "DataConfig"]:
        """The options of each of `corpora`: name -> `DataConfig`."""
        return {
            name: DataConfig(
                source=corpus.source,
                target=corpus.target,
                dataset=corpus.dataset or DataConfig.dataset,
                data_dir=self.data_dir,
                reverse=corpus.reverse,
                train_split=corpus.train_split,
                validation_split=self.validation_split,
                encoding=self.encoding if corpus.source else UTF_8,
                source_language=corpus.source_language,
                target_language=corpus.target_language,
            )
            for name, corpus in (self.corpora or {}).items()
        }


def recorded(options: dict) -> dict:
    """The options as they are recorded, except the languages. A default that older records lack is omitted.

    >>> recorded({"max_length": 40, "encoding": "utf-8"})
    {'max_length': 40}
    """
    added = (("encoding", UTF_8), ("corpora", None), ("stages", None))
    return {name: value for name, value in options.items() if (name, value) not in added and name not in LANGUAGES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Batches of the training.

    Args:
        tokens_per_batch: global batch size over all devices, in tokens of the longer side, including padding.
        num_buckets: number of padded lengths for batches with one pair per row. Each is one shape to compile. Not
            allowed with `augmentation` or `corpora`. Default: packing, with several pairs per row, one shape and little
            padding.
        stages: parts of the training with different mixtures of `corpora`, in a YAML file, in their order; see
            `StageConfig`. Default: one mixture, by the weights of the corpora.

    Raises:
        ValueError: if an option is out of range.
    """

    tokens_per_batch: int = 4096
    num_buckets: int | None = None
    stages: list[StageConfig] | None = None

    def __post_init__(self):
        require(at_least(1, num_buckets=self.num_buckets), at_least(2, tokens_per_batch=self.tokens_per_batch))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentationConfig:
    """Random changes of the training text, different in each epoch.

    The changed text is tokenized during the training, by other processes. A changed pair that is longer than a packed
    row or `model.max_length` is replaced by the unchanged one.

    Args:
        source_sampling: subword sampling of the source: the probability that a merge of BPE is omitted (BPE-dropout).
            0.1 is common.
        target_sampling: subword sampling of the target.
        upper_case: probability that both sides of a pair are in upper case. The tokenizer then learns such text, too:
            use a larger `tokenizer.vocab_size`.
        title_case: probability that each word of both sides starts with a capital letter.
        no_end_punctuation: probability that the punctuation at the end is removed from both sides.
        typos: probability that a source word with at least four letters has a typing error.
        merge: probability that a pair is joined with another one.

    Raises:
        ValueError: if a probability is not in [0, 1).

    Reference:
        Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
    """

    source_sampling: float = 0.0
    target_sampling: float = 0.0
    upper_case: float = 0.0
    title_case: float = 0.0
    no_end_punctuation: float = 0.0
    typos: float = 0.0
    merge: float = 0.0

    def __post_init__(self):
        rates = {f"augmentation.{name}": value for name, value in dataclasses.asdict(self).items()}
        require(within("[0, 1)", **rates))

    @property
    def is_used(self) -> bool:
        """Whether anything changes."""
        return any(dataclasses.astuple(self))

    @property
    def changes_text(self) -> bool:
        """Whether the text changes, and not only its subwords."""
        return dataclasses.replace(self, source_sampling=0.0, target_sampling=0.0).is_used


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareConfig(DataConfig):
    """Options of `keras-transformer prepare`.

    The options of the data are included; `keras-transformer help prepare` explains them.

    Args:
        output: the folder to write.
        overwrite: replace existing tokens in `output`.
        init_from: model directory to fine-tune later. Its tokenizer is used; options of `tokenizer` are then not
            allowed.
        clean: clean the training text with the filters of `cleaning`. The validation text is not cleaned.
        cleaning: filters for crawled text
        tokenizer: tokenizer options

    Raises:
        ValueError: if an option is invalid.
    """

    output: str
    overwrite: bool = False
    init_from: str | None = None
    clean: bool = False
    cleaning: CleaningConfig = dataclasses.field(default_factory=CleaningConfig)
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)

    def __post_init__(self):
        super().__post_init__()
        if self.cleaning != CleaningConfig() and not self.clean:
            raise ValueError("Options of `cleaning` require `clean`. Received: clean=False")
        if self.init_from and self.tokenizer != TokenizerConfig():
            raise ValueError(
                "`tokenizer` must not be given with `init_from`, which contains it. "
                f"Received: init_from={self.init_from!r}"
            )
