"""The shape of a Transformer: one frozen dataclass, and the paper's rows by name."""

import dataclasses
from typing import Any, Literal, Self


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Everything that decides the weights and the arithmetic of a `Transformer`.

    The defaults are the base model of the paper. Names and defaults are the paper's
    (N is `num_layers`, h is `num_heads`).

    Args:
        vocab_size: number of subwords of the target, and of the source where that is the same.
        source_vocab_size: number of subwords of the source, where the vocabularies are separate
            (`share_embeddings=False`). Default: `vocab_size`.
        num_layers: layers in the encoder, and as many in the decoder.
        d_model: width of the residual stream.
        num_heads: attention heads.
        d_ff: inner width of the feed-forward layers.
        d_k: width of one head's queries and keys. Default: `d_model / num_heads`.
        d_v: width of one head's values. Default: `d_model / num_heads`.
        dropout: rate on each sub-layer's output and on embedding + position.
        attention_dropout: rate on the attention weights.
        activation_dropout: rate on the inner activations of the feed-forward layers.
        activation: name of a Keras activation.
        use_bias: biases in projections and feed-forward layers.
        norm_first: normalise before each sub-layer instead of after the residual sum.
        final_norm: normalise the output of each stack. Default: the value of `norm_first`.
        positions: `"sinusoidal"` or `"learned"`.
        max_length: number of learned positions; with `positions="learned"` only.
        position_layout: order of the sinusoids: sines and cosines `"interleaved"`, as in the paper, or in
            `"halves"`, first all sines, as in Marian.
        share_embeddings: one matrix for the source embedding, the target embedding and the
            output (§3.4); otherwise three.
        scale_embedding: multiply embeddings by √d_model (§3.4).
        logits_bias: a bias for each subword's logit, which the paper does without.
        layer_norm_epsilon: added to the variance in layer normalisation.
        pad_id: id of padding.
        bos_id: id that starts every target.
        eos_id: id that ends every source and target.

    Raises:
        ValueError: naming every argument that is wrong, all of them at once.

    Example:

    >>> TransformerConfig(vocab_size=8000, d_model=256, num_heads=4).head_dims
    (64, 64)
    >>> TransformerConfig.preset("table3-B-dk16", vocab_size=37000).d_k
    16

    Reference:
        Vaswani et al. 2017, §3 and Table 3.
    """

    vocab_size: int
    source_vocab_size: int | None = None
    num_layers: int = 6
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    d_k: int | None = None
    d_v: int | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str = "relu"
    use_bias: bool = True
    norm_first: bool = False
    final_norm: bool | None = None
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    max_length: int | None = None
    position_layout: Literal["interleaved", "halves"] = "interleaved"
    share_embeddings: bool = True
    scale_embedding: bool = True
    logits_bias: bool = False
    layer_norm_epsilon: float = 1e-5
    pad_id: int = 0
    bos_id: int = 2
    eos_id: int = 3

    def __post_init__(self) -> None:
        faults = [*self._type_faults()]
        faults = faults or [*self._size_faults(), *self._combination_faults()]
        if faults:
            raise ValueError("Invalid TransformerConfig:\n" + "\n".join(f"- {f}" for f in faults))

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """A named configuration, with any field replaced.

        Args:
            name: `"tiny"`, `"base"`, `"big"` or a row of Table 3 such as `"table3-B-dk16"`;
                `PRESETS` lists them all.
            **overrides: fields of `TransformerConfig`; `vocab_size` has no default.

        Returns:
            A `TransformerConfig`.

        Raises:
            ValueError: if the name or the name of an override is unknown.

        Example:

        >>> TransformerConfig.preset("big", vocab_size=37000, dropout=0.1).d_ff
        4096
        """
        if name not in PRESETS:
            raise ValueError(f"Unknown preset. Expected one of {sorted(PRESETS)}. Received: name={name!r}")
        unknown = sorted(set(overrides) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"`overrides` must be fields of TransformerConfig. Received: {unknown}")
        return cls(**{**PRESETS[name], **overrides})

    @property
    def head_dims(self) -> tuple[int, int]:
        """`(d_k, d_v)` with the defaults filled in."""
        default = self.d_model // self.num_heads
        return self.d_k or default, self.d_v or default

    @property
    def source_vocabulary(self) -> int:
        """Number of source subwords, with the default filled in."""
        return self.source_vocab_size or self.vocab_size

    def _type_faults(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected = _ALLOWED_TYPES[field.type]
            is_bool_for_number = isinstance(value, bool) and bool not in expected
            if is_bool_for_number or not isinstance(value, expected):
                names = " or ".join("None" if t is type(None) else t.__name__ for t in expected)
                yield f"`{field.name}` must be {names}. Received: {field.name}={value!r}"

    def _size_faults(self):
        for name in ("vocab_size", "source_vocab_size", "num_layers", "d_model", "num_heads", "d_ff", "d_k", "d_v"):
            value = getattr(self, name)
            if value is not None and value < 1:
                yield f"`{name}` must be at least 1. Received: {name}={value}"
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                yield f"`{name}` must be in [0, 1). Received: {name}={getattr(self, name)}"
        if not self.layer_norm_epsilon > 0:
            yield f"`layer_norm_epsilon` must be positive. Received: layer_norm_epsilon={self.layer_norm_epsilon}"
        ids = (self.pad_id, self.bos_id, self.eos_id)
        smallest = min(self.vocab_size, self.source_vocabulary)
        if len(set(ids)) < 3 or not all(0 <= i < smallest for i in ids):
            yield (
                f"`pad_id`, `bos_id` and `eos_id` must be different and in [0, {smallest}). "
                f"Received: pad_id={self.pad_id}, bos_id={self.bos_id}, eos_id={self.eos_id}"
            )

    def _combination_faults(self):
        if None in (self.d_k, self.d_v) and self.num_heads > 0 and self.d_model % self.num_heads:
            yield (
                "`d_model` must be a multiple of `num_heads` unless `d_k` and `d_v` are given. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}"
            )
        # Functions that are registered with Keras have names such as "package>function"; only Keras knows these.
        if self.activation not in ACTIVATIONS and ">" not in self.activation:
            yield f"`activation` must be one of {', '.join(ACTIVATIONS)}. Received: activation={self.activation!r}"
        if self.positions not in ("sinusoidal", "learned"):
            yield f"`positions` must be 'sinusoidal' or 'learned'. Received: positions={self.positions!r}"
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield f"`d_model` must be even. Received: d_model={self.d_model}"
        if self.positions == "learned" and (self.max_length or 0) < 1:
            yield f"`max_length` must be at least 1 with learned positions. Received: max_length={self.max_length}"
        if self.position_layout not in ("interleaved", "halves"):
            yield f"`position_layout` must be 'interleaved' or 'halves'. Received: {self.position_layout!r}"
        if self.positions == "learned" and self.position_layout != "interleaved":
            yield f"`position_layout` goes with sinusoidal positions only. Received: {self.position_layout!r}"
        if self.positions == "sinusoidal" and self.max_length is not None:
            yield f"`max_length` goes with learned positions only. Received: max_length={self.max_length}"
        if self.share_embeddings and self.source_vocabulary != self.vocab_size:
            yield (
                "`source_vocab_size` must equal `vocab_size` when embeddings are shared. "
                f"Received: source_vocab_size={self.source_vocab_size}, vocab_size={self.vocab_size}"
            )


#: The activations of Keras that keep the shape of their input, by name: importing Keras to ask for them takes seconds.
ACTIVATIONS = (
    "celu elu exponential gelu hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu linear log_sigmoid "
    "log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus sparse_sigmoid "
    "sparsemax squareplus swish tanh tanh_shrink threshold"
).split()

_ALLOWED_TYPES = {
    int: (int,),
    float: (float, int),
    bool: (bool,),
    str: (str,),
    int | None: (int, type(None)),
    bool | None: (bool, type(None)),
    Literal["sinusoidal", "learned"]: (str,),
    Literal["interleaved", "halves"]: (str,),
}

_BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}

#: Name -> fields that differ from the defaults, which are the base model. The two rows of block D
#: that vary the label smoothing are the base model: smoothing is an argument of the loss.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"num_layers": 2, "d_model": 128, "num_heads": 4, "d_ff": 512},
    "base": {},
    "big": _BIG,
    "table3-base": {},
    "table3-A-h1": {"num_heads": 1},
    "table3-A-h4": {"num_heads": 4},
    "table3-A-h16": {"num_heads": 16},
    "table3-A-h32": {"num_heads": 32},
    "table3-B-dk16": {"d_k": 16},
    "table3-B-dk32": {"d_k": 32},
    "table3-C-N2": {"num_layers": 2},
    "table3-C-N4": {"num_layers": 4},
    "table3-C-N8": {"num_layers": 8},
    "table3-C-d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "table3-C-d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "table3-C-dff1024": {"d_ff": 1024},
    "table3-C-dff4096": {"d_ff": 4096},
    "table3-D-dropout0.0": {"dropout": 0.0},
    "table3-D-dropout0.2": {"dropout": 0.2},
    "table3-D-smoothing0.0": {},
    "table3-D-smoothing0.2": {},
    "table3-E-learned": {"positions": "learned", "max_length": 1024},
    "table3-big": _BIG,
}
