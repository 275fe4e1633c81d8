"""What the import has to know of a family of models of the library transformers."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

#: A function of the fields of config.json.
OfConfig = Callable[[Mapping[str, Any]], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """A field of config.json that decides fields of `TransformerConfig`.

    Attributes:
        default: the value if config.json has no such field.
        values: value -> fields of `TransformerConfig`. A field may be a function of config.json.
    """

    default: Any
    values: Mapping[Any, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """How text becomes ids.

    Attributes:
        sentencepiece: files of the SentencePiece models: that of both sides, which tokenizer.json can replace, or those
            of source and target.
        ids: where the ids of the pieces come from, in order of preference. `"vocab.json"`: this file, if it exists.
            `"fairseq"`: the special pieces of fairseq come first, then those of SentencePiece. `"sentencepiece"`: the
            ids of SentencePiece.
        has_added_pieces: whether further pieces, such as the languages, follow. The files of the tokenizer list them.
        language: pattern of the pieces of languages. The group that matches is the code of the language. A piece that
            matches without a group has another meaning, such as a task. Text cannot produce it.
        language_in_line: whether the piece of the target language is part of the text that SentencePiece divides, which
            may put the word-boundary marker before it. Otherwise the piece is put before the divided text.
        of_training: pattern of added pieces that occur in the training only. Other added pieces are not supported,
            except languages.
    """

    sentencepiece: tuple[str, ...]
    ids: tuple[str, ...]
    has_added_pieces: bool = False
    language: re.Pattern | None = None
    language_in_line: bool = False
    of_training: re.Pattern = re.compile("(?!)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of models.

    Attributes:
        title: its name in messages.
        model_types: values of `model_type` in config.json.
        architecture: class of transformers that generates.
        required: field of config.json -> the only supported value. A field may be missing.
        sizes: field of `TransformerConfig` -> field of config.json, an int, or several which must be equal.
        rates: field of `TransformerConfig` -> field of config.json and its default value.
        options: field of config.json, or several of which the first in the file counts -> `Option`.
        fixed: fields of `TransformerConfig` of all models. A field may be a function of config.json.
        modules: name of a module -> path of the layer; see `foreign_weights`. A function of the fields of
            `TransformerConfig`.
        fallbacks: field of config.json -> the field whose value it has if it is missing.
        first_rows: name of a weight -> its first row that is imported.
        factors: end of the name of a weight -> its factor, a function of config.json.
        computed: name of a weight that may be missing in the file -> its value, a function of config.json.
        ignored: pattern of the names of weights that are not imported, because the model computes or does not use them.
        may_untie_output: whether the file may contain a separate matrix of the logits.
        vocabulary: the `Vocabulary`.
        forces_language: whether the target starts with the piece of the target language, and the source with that of
            the source language.
            Otherwise a source starts with the piece of the target language, if there are such pieces.
        tokenizer: field of tokenizer_config.json -> its supported values. Other values change the places of the tokens
            of languages.
        former_architectures: former names of `architecture`.
    """

    title: str
    model_types: tuple[str, ...]
    architecture: str
    required: Mapping[str, Any]
    sizes: Mapping[str, str | tuple[str, ...]]
    rates: Mapping[str, tuple[str, float]]
    options: Mapping[str | tuple[str, ...], Option]
    fixed: Mapping[str, Any]
    modules: Callable[[Mapping[str, Any]], Mapping[str, str]]
    vocabulary: Vocabulary
    fallbacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    first_rows: Mapping[str, int] = dataclasses.field(default_factory=dict)
    factors: Mapping[str, OfConfig] = dataclasses.field(default_factory=dict)
    computed: Mapping[str, OfConfig] = dataclasses.field(default_factory=dict)
    ignored: re.Pattern = re.compile("(?!)")
    may_untie_output: bool = False
    forces_language: bool = False
    tokenizer: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    former_architectures: tuple[str, ...] = ()
