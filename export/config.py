"""What an export can be told."""

import dataclasses

from keras_transformer.decoding import BeamSearch

FORMATS = ("saved_model", "onnx", "ctranslate2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportConfig(BeamSearch):
    """One export; the search is fixed in the exported graphs.

    Args:
        format: formats to write, separated by commas: `saved_model`, `onnx`, `ctranslate2`.
        n_best: hypotheses in `n_best`, `tokens` and `model.onnx`. Default: `beam_size`.

    Raises:
        ValueError: naming the argument that is wrong.
    """

    format: str = "saved_model,onnx"
    n_best: int | None = None

    def __post_init__(self):
        if self.n_best is None:
            object.__setattr__(self, "n_best", self.beam_size)
        super().__post_init__()
        unknown = [name for name in self.formats if name not in FORMATS]
        if unknown or not self.formats:
            raise ValueError(f"`format` must be among {', '.join(FORMATS)}. Received: format={self.format!r}")

    @property
    def formats(self) -> list[str]:
        """The formats, one by one."""
        return [name.strip() for name in self.format.split(",") if name.strip()]

    @property
    def strategy(self) -> BeamSearch:
        """The search that the exported graphs hold."""
        fields = [field.name for field in dataclasses.fields(BeamSearch)]
        return BeamSearch(**{name: getattr(self, name) for name in fields})
