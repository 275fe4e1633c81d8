"""The configuration of a Transformer, and presets for the models of the paper's Table 3."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, get_args, get_origin

from keras_transformer.checks import at_least, fields, one_of, positive, require, within

#: Ids of padding, unknown text, start and end: those of every tokenizer of this package, and the defaults of models.
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Configuration of a `Transformer`.

    The defaults are the base model of the paper. Names follow the paper; N is `num_layers` and h is `num_heads`.

    Args:
        vocab_size: size of the target vocabulary, and of the source vocabulary unless `source_vocab_size` is given.
        source_vocab_size: size of a separate source vocabulary; requires `share_embeddings=False`.
            Default: `vocab_size`.
        num_layers: number of layers in the encoder, and in the decoder.
        num_encoder_layers: number of layers in the encoder. Default: `num_layers`.
        num_decoder_layers: number of layers in the decoder. Default: `num_layers`. A decoder of few layers
            translates faster, because it runs once per token.
        d_model: width of the residual stream.
        num_heads: number of attention heads.
        d_ff: inner width of the feed-forward layers.
        d_k: width of one head's queries and keys. Default: `d_model / num_heads`.
        d_v: width of one head's values. Default: `d_model / num_heads`.
        dropout: dropout rate on the output of each sub-layer and on the sum of embedding and position.
        attention_dropout: dropout rate on the attention weights.
        activation_dropout: dropout rate on the inner activations of the feed-forward layers.
        activation: name of a Keras activation or of a registered function, or `"gelu_tanh"`.
        use_bias: whether projections and feed-forward layers have biases.
        norm_first: normalize before each sub-layer instead of after the residual sum.
        final_norm: normalize the output of each stack. Default: the value of `norm_first`.
        num_kv_heads: number of heads of keys and values: grouped-query attention. Default: `num_heads`.
        qk_norm: normalize the queries and keys of self-attention.
        soft_cap: limit of the attention scores c in c · tanh(score / c). Default: no limit.
        window: number of positions that self-attention sees, including its own: a sliding window. Default: all.
        norm: `"layer"` or `"rms"` normalization.
        feed_forward: `"plain"`, or `"gated"`: SwiGLU with the activation `"silu"`.
        positions: `"sinusoidal"` or `"learned"`, added to the embeddings; `"rotary"`, `"alibi"` or `"relative"` (the
            buckets of T5, shared by the layers of a stack), which self-attention applies; or `"none"`.
        max_length: number of learned positions. Only for `positions="learned"`.
        position_layout: order of the sinusoids. `"interleaved"` alternates sines and cosines, as in the paper.
            `"halves"` puts all sines before all cosines, as in Marian.
        share_embeddings: use one matrix for the source embedding and the target embedding (§3.4).
        tie_output: use the matrix of the target embedding for the output, too (§3.4). Default: the value of
            `share_embeddings`. T5 v1.1 shares the embeddings and has another matrix for the output.
        scale_embedding: multiply embeddings by √d_model (§3.4).
        embedding_norm: normalize the sum of embedding and position, unlike the paper.
        logits_scale: factor of the logits, unlike the paper: 1 / √d_model in T5. Default: 1.
        logits_bias: add a bias to the logits, unlike the paper.
        layer_norm_epsilon: added to the variance in layer normalization.
        pad_id: id of the padding token.
        bos_id: id of the token that starts every target. May equal `pad_id`, as in T5.
        eos_id: id of the token that ends every source and target.

    Raises:
        ValueError: if arguments are invalid. The message lists all of them.

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
    num_encoder_layers: int | None = None
    num_decoder_layers: int | None = None
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
    num_kv_heads: int | None = None
    qk_norm: bool = False
    soft_cap: float | None = None
    window: int | None = None
    norm: Literal["layer", "rms"] = "layer"
    feed_forward: Literal["plain", "gated"] = "plain"
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"] = "sinusoidal"
    max_length: int | None = None
    position_layout: Literal["interleaved", "halves"] = "interleaved"
    share_embeddings: bool = True
    tie_output: bool | None = None
    scale_embedding: bool = True
    embedding_norm: bool = False
    logits_scale: float | None = None
    logits_bias: bool = False
    layer_norm_epsilon: float = 1e-5
    pad_id: int = PAD_ID
    bos_id: int = BOS_ID
    eos_id: int = EOS_ID

    def __post_init__(self) -> None:
        require(self._type_problems(), of="Invalid TransformerConfig")
        require(self._size_problems(), self._combination_problems(), of="Invalid TransformerConfig")

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Makes a configuration from a preset.

        Args:
            name: `"tiny"`, `"base"`, `"big"`, `"modern"`, `"student-tiny"`, `"student-base"` or a row of Table 3 such
                as `"table3-B-dk16"`. `PRESETS` lists all names. `"modern"` has the size of `"base"` and the parts of
                current language models: rotary positions, RMS normalization before each part, SwiGLU and grouped
                queries.
            **overrides: fields of `TransformerConfig` that differ from the preset. `vocab_size` is required.
                `num_layers` replaces the preset's numbers of both stacks.

        Returns:
            A `TransformerConfig`.

        Raises:
            ValueError: if `name` or the name of an override is unknown.

        Example:

        >>> TransformerConfig.preset("big", vocab_size=37000, dropout=0.1).d_ff
        4096
        """
        require(one_of(sorted(PRESETS), name=name))
        unknown = sorted(set(overrides) - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"`overrides` must be fields of TransformerConfig. Received: {unknown}")
        fields = PRESETS[name]
        if "num_layers" in overrides:
            fields = {name: value for name, value in fields.items() if name not in _DEPTHS}
        return cls(**{**fields, **overrides})

    @property
    def head_dims(self) -> tuple[int, int]:
        """`(d_k, d_v)`, including default values."""
        default = self.d_model // self.num_heads
        return self.d_k or default, self.d_v or default

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values, including its default value."""
        return self.num_kv_heads or self.num_heads

    @property
    def depths(self) -> tuple[int, int]:
        """`(num_encoder_layers, num_decoder_layers)`, including default values."""
        return self.num_encoder_layers or self.num_layers, self.num_decoder_layers or self.num_layers

    @property
    def source_vocabulary(self) -> int:
        """Size of the source vocabulary, including its default value."""
        return self.source_vocab_size or self.vocab_size

    @property
    def has_tied_output(self) -> bool:
        """`tie_output`, including its default value."""
        return self.share_embeddings if self.tie_output is None else self.tie_output

    def variants(self) -> dict[str, Any]:
        """The fields that ask for parts which the paper does not have, with their values."""
        found = {name: getattr(self, name) for name in _VARIANTS if getattr(self, name) != getattr(type(self), name)}
        return found if self.positions in ("sinusoidal", "learned") else {**found, "positions": self.positions}

    def variant_problems(self, **supported: Sequence) -> Iterator[str]:
        """The problems of a consumer that supports the parts of the paper, and given values of other fields."""
        for name, value in self.variants().items():
            values = [getattr(type(self), name), *supported.get(name, ())]
            if value not in values:
                yield f"`{name}` must be {' or '.join(map(repr, values))}. Received: {name}={value!r}"

    def _type_problems(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            expected = _types_of(field.type)
            is_bool_for_number = isinstance(value, bool) and bool not in expected
            if is_bool_for_number or not isinstance(value, expected):
                names = " or ".join("None" if t is type(None) else t.__name__ for t in expected)
                yield f"`{field.name}` must be {names}. Received: {field.name}={value!r}"

    def _size_problems(self):
        sizes = ("num_layers", *_DEPTHS, "d_model", "num_heads", "num_kv_heads", "d_ff", "d_k", "d_v", "window")
        yield from at_least(1, **fields(self, "vocab_size", "source_vocab_size", *sizes))
        yield from within("[0, 1)", **fields(self, "dropout", "attention_dropout", "activation_dropout"))
        yield from positive(**fields(self, "layer_norm_epsilon", "soft_cap", "logits_scale"))
        ids = (self.pad_id, self.bos_id, self.eos_id)
        smallest = min(self.vocab_size, self.source_vocabulary)
        if self.eos_id in ids[:2] or not all(0 <= i < smallest for i in ids):
            yield (
                f"`eos_id` must differ from `pad_id` and `bos_id`, and all must be in [0, {smallest}). "
                f"Received: pad_id={self.pad_id}, bos_id={self.bos_id}, eos_id={self.eos_id}"
            )

    def _combination_problems(self):
        if None in (self.d_k, self.d_v) and self.num_heads > 0 and self.d_model % self.num_heads:
            yield (
                "`d_model` must be a multiple of `num_heads` unless `d_k` and `d_v` are given. "
                f"Received: d_model={self.d_model}, num_heads={self.num_heads}"
            )
        if self.num_kv_heads and self.num_heads % self.num_kv_heads:
            yield (
                "`num_heads` must be a multiple of `num_kv_heads`. "
                f"Received: num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}"
            )
        # Keras names registered functions "package>function". They cannot be checked without importing Keras.
        if ">" not in self.activation:
            yield from one_of(ACTIVATIONS, activation=self.activation)
        for field in dataclasses.fields(self):
            if get_origin(field.type) is Literal:
                yield from one_of(get_args(field.type), **{field.name: getattr(self, field.name)})
        yield from self._position_problems()
        if self.share_embeddings and self.source_vocabulary != self.vocab_size:
            yield (
                "`source_vocab_size` must equal `vocab_size` when embeddings are shared. "
                f"Received: source_vocab_size={self.source_vocab_size}, vocab_size={self.vocab_size}"
            )

    def _position_problems(self):
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield f"`d_model` must be even. Received: d_model={self.d_model}"
        if self.positions == "rotary" and self.head_dims[0] % 2:
            yield f"The width of a head, `d_k`, must be even with rotary positions. Received: d_k={self.head_dims[0]}"
        if self.positions == "learned" and (self.max_length or 0) < 1:
            yield f"`max_length` must be at least 1 with learned positions. Received: max_length={self.max_length}"
        if self.positions != "learned" and self.max_length is not None:
            yield f"`max_length` must be None with {self.positions} positions. Received: max_length={self.max_length}"
        if self.positions != "sinusoidal" and self.position_layout != "interleaved":
            yield (
                f"`position_layout` must be 'interleaved' with {self.positions} positions. "
                f"Received: position_layout={self.position_layout!r}"
            )


def _types_of(annotation: Any) -> tuple[type, ...]:
    """The types of the values of a field: `int` values are floats, too, and a choice is a string."""
    if get_origin(annotation) is Literal:
        return (str,)
    types = get_args(annotation) or (annotation,)
    return (*types, int) if float in types else types


#: The Keras activations that keep the shape of their input and need no argument, and `gelu_tanh`, which is Keras's GELU
#: with `approximate=True`. They are listed here because importing Keras takes seconds.
ACTIVATIONS = (
    "celu elu exponential gelu gelu_tanh hard_shrink hard_sigmoid hard_silu hard_swish hard_tanh leaky_relu linear "
    "log_sigmoid log_softmax mish relu relu6 selu sigmoid silu soft_shrink softmax softplus softsign sparse_plus "
    "sparse_sigmoid sparsemax squareplus swish tanh tanh_shrink"
).split()

#: Fields of parts that the paper does not have; `positions` is another one.
_VARIANTS = (
    *("num_kv_heads", "qk_norm", "soft_cap", "window", "norm", "feed_forward"),
    *("embedding_norm", "logits_scale"),
)
_DEPTHS = ("num_encoder_layers", "num_decoder_layers")
_BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}

#: Preset name -> fields that differ from the base model. The students have the sizes of Bogoychev et al. 2020,
#: "Edinburgh's Submissions to the 2020 Machine Translation Efficiency Task". The two rows of block D with another label
#: smoothing equal the base model, since smoothing is an argument of the loss.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"num_layers": 2, "d_model": 128, "num_heads": 4, "d_ff": 512},
    "base": {},
    "big": _BIG,
    "modern": {
        "norm_first": True,
        "norm": "rms",
        "feed_forward": "gated",
        "activation": "silu",
        "d_ff": 1408,
        "use_bias": False,
        "positions": "rotary",
        "num_kv_heads": 2,
    },
    "student-tiny": {"num_encoder_layers": 6, "num_decoder_layers": 2, "d_model": 256, "d_ff": 1536},
    "student-base": {"num_encoder_layers": 6, "num_decoder_layers": 2},
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
