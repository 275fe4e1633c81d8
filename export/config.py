"""Options of an export."""

import dataclasses
from typing import Literal

from keras_transformer.checks import one_of, require
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.registry import FORMATS
from keras_transformer.storage.model_directory import export_name
from keras_transformer.text.files import UTF_8, canonical_encoding

_NAMES = tuple(dict.fromkeys(format.format for format in FORMATS.values()))
_QUANTIZED = tuple(dict.fromkeys(format.quantize for format in FORMATS.values() if format.quantize))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(BeamSearch):
    """Options of an export.

    The exported programs contain the search with these options. Only CTranslate2's client can change them.

    Args:
        format: formats to write, separated by commas. Default: `saved_model,onnx`, or `onnx` with `quantize`.
        quantize: write ONNX with int8 weights, or in float16 for GPUs. An existing float32 export is kept.
        source: text with which a quantized export is verified, also by BLEU, plain or .gz, in the default source
            language of the model. Default: a quantized export is verified by the likelihood of its translations of
            random sentences.
        reference: translation of `source`, aligned line by line.
        encoding: encoding of `source` and `reference`, such as `cp1252` or `utf-16`.
        shortlist: search among the tokens of the model's shortlist only, which `keras-transformer shortlist` writes.
            Models whose targets start with the token of a language do not support it.
        n_best: number of hypotheses that `model.onnx` and the signatures `n_best` and `tokens` of the SavedModel
            return. Default: `beam_size`.
        token_scores: whether `model.onnx` and the signature `tokens` of the SavedModel also return the log probability
            of each token.

    Raises:
        ValueError: if an option is invalid.
    """

    format: str | None = None
    quantize: Literal["int8", "float16"] | None = None
    source: str | None = None
    reference: str | None = None
    encoding: str = UTF_8
    shortlist: bool = False
    logits_processor: None = dataclasses.field(default=None, init=False)  # Not an option of the command line.
    n_best: int | None = None  # pyright: ignore[reportIncompatibleVariableOverride]  # `__post_init__` sets a number.

    def __post_init__(self):
        if self.n_best is None:
            object.__setattr__(self, "n_best", self.beam_size)
        super().__post_init__()
        if self.format is None:
            object.__setattr__(self, "format", "onnx" if self.quantize else "saved_model,onnx")
        unknown = [name for name in self.formats if name not in _NAMES]
        if unknown or not self.formats:
            raise ValueError(f"`format` must be among {', '.join(_NAMES)}. Received: format={self.format!r}")
        require(one_of((None, *_QUANTIZED), quantize=self.quantize))
        quantizable = {format.format for format in FORMATS.values() if format.quantize == self.quantize}
        if not quantizable.issuperset(self.formats):
            names = ", ".join(name for name in _NAMES if name in quantizable)
            raise ValueError(f"`quantize` requires format {names} only. Received: format={self.format!r}")
        for name in self.formats:
            if self.token_scores and not FORMATS[name].supports_token_scores:
                raise ValueError(f"`token_scores` is not supported by format {name}. Received: token_scores=True")
            if self.shortlist and not FORMATS[name].supports_shortlist:
                raise ValueError(f"`shortlist` is not supported by format {name}. Received: shortlist=True")
        canonical_encoding(self.encoding)
        if (self.source is None) != (self.reference is None) or (self.source and not self.quantize):
            raise ValueError(
                "`source` and `reference` must be given together, and only with `quantize`. "
                f"Received: source={self.source!r}, reference={self.reference!r}, quantize={self.quantize!r}"
            )

    @property
    def formats(self) -> list[str]:
        """The list of formats."""
        return [name.strip() for name in (self.format or "").split(",") if name.strip()]

    @property
    def names(self) -> list[str]:
        """The names of the exports to write."""
        return [export_name(format, self.quantize) for format in self.formats]

    @property
    def strategy(self) -> BeamSearch:
        """The search to export."""
        fields = [field.name for field in dataclasses.fields(BeamSearch)]
        return BeamSearch(**{name: getattr(self, name) for name in fields})
