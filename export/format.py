"""The interface of an export format."""

import dataclasses
import operator
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_transformer.decoding import BeamSearch
from keras_transformer.storage.languages import Languages, languages_of
from keras_transformer.storage.model_directory import ModelDirectory, export_name


def generates_tokens(model) -> bool:
    """Whether a program of a model is a search, not one call."""
    return hasattr(model, "search")


class Exported(NamedTuple):
    """What an export is made from.

    Attributes:
        model: the model. With tokenizers: a `Transformer`.
        directory: its model directory; `None` without tokenizers.
        tokenizers: the source and the target `Tokenizer`. Without them the programs are those of the model alone.
        strategy: the search that the program performs; `None` if it is one call of the model.
        shortlist: the `Shortlist` of the tokens among which it searches. Default: the whole vocabulary.
        metric: similarity of two lists of outputs of approximate programs without a search. Default: the cosine.
        takes_prefix: whether the program has the input `prefix`: the first tokens of the hypotheses.
        texts: the lines of a text and of its translation, with which a quantized program is verified.
    """

    model: Any
    directory: ModelDirectory | None
    tokenizers: tuple[Any, Any] | None
    strategy: Any
    shortlist: Any = None
    metric: Callable | None = None
    takes_prefix: bool = False
    texts: Sequence[Sequence[str]] = ()

    def search(self, source, strategy, **inputs):
        """The search on tensors, for a graph."""
        if self.tokenizers is not None:
            inputs |= {"shortlist": self.shortlist, "text_constraints": self.tokenizers[1].text_constraints}
        return self.model.search(source, strategy, **inputs)

    @property
    def languages(self) -> Languages:
        """The languages of the model."""
        return Languages() if self.directory is None else languages_of(self.directory.path)

    @property
    def recorded_search(self) -> dict:
        """The search, for the records of an export."""
        return {} if self.strategy is None else {"search": self.strategy.options}


class Program(NamedTuple):
    """A program in an export, and how it is verified.

    Attributes:
        client: runs the program; it has `search` as in `TokenTranslator`.
        strategy: the search that the program performs.
        verify: compares the program with the Keras model. Called as `verify(expected, client, batches)` with the
            `reference` or a `KerasSearch`.
        takes_text: whether the program tokenizes and detokenizes, so that its text is compared too.
        has_search: whether the program searches with the shortlist and the constraints of text, so that the Keras
            search that it is compared with does, too.
        reference: the Keras model with which a program of a model alone is compared.
        release: called after the verification: frees memory of the client, which other programs may use, too.
    """

    client: Any
    strategy: Any
    verify: Callable
    takes_text: bool = False
    has_search: bool = True
    reference: Any = None
    release: Callable[[], None] = lambda: None


def late(name: str, **options) -> Callable:
    """A function of `keras_transformer.export` by its name, such as `"web.export:write_web"`.

    Its module, and what that depends on, is imported by the first call. Every call has the options.
    """

    def call(*arguments):
        return pkgutil.resolve_name(f"keras_transformer.export.{name}")(*arguments, **options)

    return call


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """An export format. Its functions are made by `late`.

    Args:
        format: its name in `--format`.
        description: what it is, for the help of `--format`.
        write: called as `write(exported, path)` with an `Exported`; creates the folder `path`.
        programs: called as `programs(path, exported)`; returns a `Program` for each title. A title is the export's
            name, or begins with it and a space. The file verification.json has an entry for each.
        require_supported: called as `require_supported(config, tokenizers, languages)`; raises `ValueError` for a
            model that the format cannot express. Default: every model is supported.
        prepare: called as `prepare()` before the model is loaded; gets what the export needs beside the model, such as
            a library. Raises `ValueError` if it is not available. Default: nothing is needed.
        quantize: type of the weights if it is not float32; the value of `--quantize`.
        supports_token_scores: whether the search can return the score of each token.
        supports_shortlist: whether an export can contain a shortlist.
        recorded_search: returns the search options that the export implements, for verification.json.
    """

    format: str
    description: str
    write: Callable
    programs: Callable[[Path, Exported], dict[str, Program]]
    require_supported: Callable | None = None
    prepare: Callable[[], object] | None = None
    quantize: str | None = None
    supports_token_scores: bool = True
    supports_shortlist: bool = True
    recorded_search: Callable[[BeamSearch], dict] = operator.attrgetter("options")

    @property
    def name(self) -> str:
        """Name of the export, of its folder and of its runtime."""
        return export_name(self.format, self.quantize)
