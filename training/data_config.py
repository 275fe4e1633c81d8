"""What the data layer can be told: which pairs there are, and what is put into a batch. Each default stands here."""

import dataclasses

from keras_transformer.text.encoding import canonical_encoding
from keras_transformer.text.files import UTF_8
from keras_transformer.text.tokenization import TokenizerConfig


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
        encoding: encoding of the text files, such as `cp1252` or `utf-16`.
        max_length: pairs with more subwords than this on a side, the end counted, are left out.
        max_length_ratio: pairs whose sides' numbers of subwords differ by more than this factor, and
            by more than 10, are left out.

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
    encoding: str = UTF_8
    max_length: int = 256
    max_length_ratio: float = 4.0

    def __post_init__(self):
        for one, other in (("source", "target"), ("validation_source", "validation_target")):
            for name in (one, other):
                object.__setattr__(self, name, _as_list(getattr(self, name)))
            sizes = len(getattr(self, one)), len(getattr(self, other))
            if sizes[0] != sizes[1]:
                raise ValueError(f"`{one}` and `{other}` must name as many files. Received: {sizes[0]} and {sizes[1]}")
        if self.validation_source and not self.source:
            raise ValueError("`validation_source` goes with `source`; a dataset has its `validation_split`")
        object.__setattr__(self, "encoding", canonical_encoding(self.encoding))
        if self.encoding != UTF_8 and not self.source:
            raise ValueError(f"`encoding` goes with `source`. Received: encoding={self.encoding!r}")
        at_least(self, max_length=2, max_length_ratio=1)


def recorded(options: dict) -> dict:
    """Options as records hold them: one that older records lack is left out where it has its default.

    Args:
        options: those of a `DataConfig`, and any others.

    Example:

    >>> recorded({"max_length": 40, "encoding": "utf-8"})
    {'max_length': 40}
    """
    return {name: value for name, value in options.items() if (name, value) != ("encoding", UTF_8)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """What is put into a training batch.

    Args:
        tokens_per_batch: size of a training batch in subwords of the longer side, padding counted, on all devices
            together.
        num_buckets: put one pair in each row, and pad batches to this many lengths; each is one shape to compile.
            Default: packed, several pairs in each row, in batches of one shape with hardly any padding.

    Raises:
        ValueError: naming the argument that is out of range.
    """

    tokens_per_batch: int = 4096
    num_buckets: int | None = None

    def __post_init__(self):
        at_least(self, num_buckets=1, tokens_per_batch=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareConfig(DataConfig):
    """A corpus made into tokens once, for any number of runs; besides its own options it has those of `DataConfig`.

    Args:
        output: the folder to write.
        overwrite: replace the tokens that lie there.
        init_from: model directory whose subwords are taken, for fine-tuning; `tokenizer` is then not to be given.
        tokenizer: the subwords.

    Raises:
        ValueError: naming the argument that is wrong.
    """

    output: str
    overwrite: bool = False
    init_from: str | None = None
    tokenizer: TokenizerConfig = dataclasses.field(default_factory=TokenizerConfig)

    def __post_init__(self):
        super().__post_init__()
        if self.init_from and self.tokenizer != TokenizerConfig():
            raise ValueError("`init_from` brings its own tokenizer; leave `tokenizer` out")


def _as_list(paths):
    return [paths] if isinstance(paths, str) else list(paths or [])


def at_least(config, **smallest) -> None:
    """Checks that options are not too small; those that are `None` are not given.

    Args:
        config: what has them as attributes.
        **smallest: the least value of each.

    Raises:
        ValueError: naming the first that is smaller.
    """
    for name, bound in smallest.items():
        value = getattr(config, name)
        if value is not None and value < bound:
            raise ValueError(f"`{name}` must be at least {bound}. Received: {name}={value}")
