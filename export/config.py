"""What an export can be told."""

import dataclasses
from typing import Literal

from keras_transformer.decoding import BeamSearch
from keras_transformer.export.registry import FORMATS
from keras_transformer.model_directory import export_name
from keras_transformer.text.encoding import canonical_encoding
from keras_transformer.text.files import UTF_8

_NAMES = tuple(dict.fromkeys(format.format for format in FORMATS.values()))
_QUANTIZED = tuple(dict.fromkeys(format.quantize for format in FORMATS.values() if format.quantize))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(BeamSearch):
    """One export; the search is fixed in the exported graphs.

    Args:
        format: formats to write, separated by commas: `saved_model`, `onnx`, `ctranslate2`,
            `huggingface` (the files of a `MarianMTModel`).
        quantize: write ONNX with int8 weights, or in float16 for GPUs, beside the float32 files.
        source: text whose translations prove a quantised export by BLEU, plain or .gz; without it the
            model judges translations of made-up sentences.
        reference: the translation of `source`, as many lines.
        encoding: encoding of `source` and `reference`, such as `cp1252` or `utf-16`.
        n_best: hypotheses in `n_best`, `tokens` and `model.onnx`. Default: `beam_size`.

    Raises:
        ValueError: naming the argument that is wrong.
    """

    format: str = "saved_model,onnx"
    quantize: Literal["int8", "float16"] | None = None
    source: str | None = None
    reference: str | None = None
    encoding: str = UTF_8
    n_best: int | None = None

    def __post_init__(self):
        if self.n_best is None:
            object.__setattr__(self, "n_best", self.beam_size)
        super().__post_init__()
        unknown = [name for name in self.formats if name not in _NAMES]
        if unknown or not self.formats:
            raise ValueError(f"`format` must be among {', '.join(_NAMES)}. Received: format={self.format!r}")
        if self.quantize not in (None, *_QUANTIZED):
            raise ValueError(f"`quantize` must be one of {', '.join(_QUANTIZED)}. Received: quantize={self.quantize!r}")
        if self.quantize and self.formats != ["onnx"]:
            raise ValueError(f"`quantize` goes with format onnx alone. Received: format={self.format!r}")
        for name in self.formats:
            if self.token_scores and not FORMATS[name].supports_token_scores:
                raise ValueError(f"`token_scores` does not go with format {name}. Received: token_scores=True")
        canonical_encoding(self.encoding)
        if (self.source is None) != (self.reference is None) or (self.source and not self.quantize):
            raise ValueError(
                "`source` and `reference` go together, and with `quantize`. "
                f"Received: source={self.source!r}, reference={self.reference!r}, quantize={self.quantize!r}"
            )

    @property
    def formats(self) -> list[str]:
        """The formats, one by one."""
        return [name.strip() for name in self.format.split(",") if name.strip()]

    @property
    def programs(self) -> list[str]:
        """What is written, by the names of the exports."""
        return [export_name(format, self.quantize) for format in self.formats]

    @property
    def strategy(self) -> BeamSearch:
        """The search that the exported graphs hold."""
        fields = [field.name for field in dataclasses.fields(BeamSearch)]
        return BeamSearch(**{name: getattr(self, name) for name in fields})
