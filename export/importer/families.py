"""The families of models that can be imported, one table each. All parts of the import read these tables.

The names are those of transformers. A model of another family is supported by one more table.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_transformer.export.importer.family import Family, Option, Vocabulary
from keras_transformer.export.interop.weight_map import projections

#: Values of `activation_function` -> fields of `TransformerConfig`.
ACTIVATIONS = {
    "swish": {"activation": "silu"},
    **{name: {"activation": name} for name in ("silu", "relu", "gelu", "tanh", "sigmoid")},
    "gelu_new": {"activation": "gelu_tanh"},
    "gelu_pytorch_tanh": {"activation": "gelu_tanh"},
}
_SCALES = Option(default=False, values={value: {"scale_embedding": value} for value in (True, False)})
_BART_SIZES = {
    "d_model": "d_model",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
}
_RATES = {
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.0),
    "activation_dropout": ("activation_dropout", 0.0),
}


def _bart_modules(fields) -> dict[str, str]:
    """The modules of BART, from which the others but T5 descend."""
    modules = {
        "model.shared": "target_embedding",
        "model.encoder.embed_tokens": "source_embedding",
        "model.decoder.embed_tokens": "target_embedding",
        "lm_head": "logits.embedding",
        "final_logits_bias": "logits.bias",
        "model.encoder.embed_positions": "source_positions",
        "model.decoder.embed_positions": "target_positions",
        "model.encoder.layernorm_embedding": "source_norm",
        "model.decoder.layernorm_embedding": "target_norm",
    }
    for stack in ("encoder", "decoder"):
        theirs, ours = f"model.{stack}.layers.{{i}}", f"{stack}.layers.{{i}}"
        modules |= {
            **projections(f"{theirs}.self_attn", f"{ours}.self_attention", "out_proj"),
            f"{theirs}.self_attn_layer_norm": f"{ours}.self_attention.norm",
            f"{theirs}.fc1": f"{ours}.feed_forward.sublayer.inner",
            f"{theirs}.fc2": f"{ours}.feed_forward.sublayer.outer",
            f"{theirs}.final_layer_norm": f"{ours}.feed_forward.norm",
            f"model.{stack}.layer_norm": f"{stack}.norm",
        }
    theirs, ours = "model.decoder.layers.{i}.encoder_attn", "decoder.layers.{i}.cross_attention"
    return {**modules, **projections(theirs, ours, "out_proj"), f"{theirs}_layer_norm": f"{ours}.norm"}


def _t5_modules(fields) -> dict[str, str]:
    modules = {
        "shared": "target_embedding",
        "encoder.embed_tokens": "source_embedding",
        "decoder.embed_tokens": "target_embedding",
        "lm_head": "logits.embedding",
        "final_logits_bias": "logits.bias",
    }
    inner = {"wi": "inner"} if fields["feed_forward"] == "plain" else {"wi_0": "gate", "wi_1": "inner"}
    for stack, parts in (("encoder", ["SelfAttention"]), ("decoder", ["SelfAttention", "EncDecAttention"])):
        theirs, ours = f"{stack}.block.{{i}}.layer", f"{stack}.layers.{{i}}"
        modules[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"] = f"{stack}.shared_positions"
        modules[f"{stack}.final_layer_norm"] = f"{stack}.norm"
        for number, (part, name) in enumerate(zip(parts, ("self_attention", "cross_attention"), strict=False)):
            found = projections(f"{theirs}.{number}.{part}", f"{ours}.{name}", "o_proj")
            modules |= {theirs.removesuffix("_proj"): ours for theirs, ours in found.items()}
            modules[f"{theirs}.{number}.layer_norm"] = f"{ours}.{name}.norm"
        for matrix, name in {**inner, "wo": "outer"}.items():
            modules[f"{theirs}.{len(parts)}.DenseReluDense.{matrix}"] = f"{ours}.feed_forward.sublayer.{name}"
        modules[f"{theirs}.{len(parts)}.layer_norm"] = f"{ours}.feed_forward.norm"
    return modules


def _fairseq_positions(config: Mapping[str, Any]) -> np.ndarray:
    """The sinusoids of fairseq: all sines first, and wavelengths from 2π to 10000 · 2π, both included."""
    half, count = config["d_model"] // 2, config.get("max_position_embeddings", 1024) + 2
    frequencies = np.exp(np.arange(half, dtype="float32") * -np.float32(np.log(10000) / (half - 1)))
    angles = np.arange(count, dtype="float32")[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_MASK = re.compile("<mask>")
_LEARNED = {"positions": "learned", "max_length": lambda config: config.get("max_position_embeddings", 1024)}
_PRE_NORM = {"norm_first": True, "final_norm": True, "use_bias": True, "layer_norm_epsilon": 1e-5, "logits_bias": True}

MARIAN = Family(
    title="Marian",
    model_types=("marian",),
    architecture="MarianMTModel",
    required={
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    },
    sizes=_BART_SIZES,
    rates=_RATES,
    options={"activation_function": Option(default="gelu", values=ACTIVATIONS), "scale_embedding": _SCALES},
    fixed={
        "norm_first": False,
        "final_norm": False,
        "positions": "sinusoidal",
        "position_layout": "halves",
        "use_bias": True,
        "layer_norm_epsilon": 1e-5,
        "logits_bias": True,
    },
    modules=_bart_modules,
    ignored=re.compile(r"model\.(encoder|decoder)\.embed_positions\.weight"),
    vocabulary=Vocabulary(
        sentencepiece=("source.spm", "target.spm"),
        ids=("vocab.json",),
        language=re.compile(r">>(.+)<<"),
    ),
)

M2M_100 = Family(
    title="M2M-100 or NLLB-200",
    model_types=("m2m_100",),
    architecture="M2M100ForConditionalGeneration",
    required={"tie_word_embeddings": True},
    sizes=_BART_SIZES,
    rates={**_RATES, "attention_dropout": ("attention_dropout", 0.1)},
    options={
        "activation_function": Option(default="relu", values=ACTIVATIONS),
        "scale_embedding": Option(default=True, values=_SCALES.values),
    },
    # Positions count from 2. The sinusoids are imported as a table.
    fixed={**_PRE_NORM, **_LEARNED},
    modules=_bart_modules,
    first_rows=dict.fromkeys(_POSITIONS, 2),
    computed=dict.fromkeys(_POSITIONS, _fairseq_positions),
    ignored=re.compile(r"model\.(encoder|decoder)\.embed_positions\.weights"),
    vocabulary=Vocabulary(
        sentencepiece=("sentencepiece.bpe.model",),
        ids=("vocab.json", "fairseq"),
        has_added_pieces=True,
        language=re.compile(r"__([a-z]+)__|([a-z]{3}_[A-Z][a-z]{3})"),
        of_training=_MASK,
    ),
    forces_language=True,
    tokenizer={
        "tokenizer_class": ("M2M100Tokenizer", "NllbTokenizer", "NllbTokenizerFast"),
        "legacy_behaviour": (False,),
    },
)

MBART = Family(
    title="mBART-50",
    model_types=("mbart",),
    architecture="MBartForConditionalGeneration",
    required={"tie_word_embeddings": True, "normalize_before": True, "normalize_embedding": True},
    sizes=_BART_SIZES,
    rates=_RATES,
    options={"activation_function": Option(default="gelu", values=ACTIVATIONS), "scale_embedding": _SCALES},
    fixed={**_PRE_NORM, **_LEARNED, "embedding_norm": True},
    modules=_bart_modules,
    first_rows=dict.fromkeys(_POSITIONS, 2),
    vocabulary=Vocabulary(
        sentencepiece=("sentencepiece.bpe.model",),
        ids=("fairseq",),
        has_added_pieces=True,
        language=re.compile(r"([a-z]{2}_[A-Z]{2})"),
        of_training=_MASK,
    ),
    forces_language=True,
    tokenizer={"tokenizer_class": ("MBart50Tokenizer", "MBart50TokenizerFast")},
)


_FEED_FORWARD = {
    "feed_forward_proj": Option(
        default="relu",
        values={
            "relu": {"feed_forward": "plain", "activation": "relu"},
            "gated-gelu": {"feed_forward": "gated", "activation": "gelu_tanh"},
            "gated-silu": {"feed_forward": "gated", "activation": "silu"},
        },
    ),
    # In transformers, this field replaces the activation.
    "dense_act_fn": Option(default=None, values={None: {}, **ACTIVATIONS}),
}

T5 = Family(
    title="T5",
    model_types=("t5",),
    architecture="T5ForConditionalGeneration",
    former_architectures=("T5WithLMHeadModel",),
    required={"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    sizes={
        "d_model": "d_model",
        "d_k": "d_kv",
        "d_v": "d_kv",
        "num_encoder_layers": "num_layers",
        "num_decoder_layers": "num_decoder_layers",
        "num_heads": "num_heads",
        "d_ff": "d_ff",
    },
    rates={name: ("dropout_rate", 0.1) for name in ("dropout", "attention_dropout", "activation_dropout")},
    options={
        **_FEED_FORWARD,
        # T5 v1.1 has `tie_word_embeddings: false`. transformers 5 writes `scale_decoder_outputs` instead.
        ("scale_decoder_outputs", "tie_word_embeddings"): Option(
            default=True, values={True: {"logits_scale": lambda config: config["d_model"] ** -0.5}, False: {}}
        ),
    },
    fixed={
        "norm": "rms",
        "norm_first": True,
        "final_norm": True,
        "use_bias": False,
        "positions": "relative",
        "scale_embedding": False,
        "layer_norm_epsilon": lambda config: config.get("layer_norm_epsilon", 1e-6),
        "logits_bias": True,
    },
    modules=_t5_modules,
    # The first T5 models contain positions of the cross-attention, which they do not use.
    ignored=re.compile(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"),
    fallbacks={"num_decoder_layers": "num_layers"},
    may_untie_output=True,
    # T5 does not divide the attention scores by √d_k.
    factors={"Attention.q.weight": lambda config: config["d_kv"] ** 0.5},
    vocabulary=Vocabulary(
        sentencepiece=("spiece.model",),
        ids=("sentencepiece",),
        # MADLAD-400 also has symbols of other tasks, scripts and regions, such as <2translate>, <2Latn> and <2CA>.
        language=re.compile(r"<2([a-z]{2,3}(?:_[A-Z][a-z]{3})?(?:_[A-Z]{2})?)>|<2\w*>"),
        language_in_line=True,
        # transformers 5 adds padding to MADLAD-400. `[new_id_0]` is of UL2.
        of_training=re.compile(r"▁?<extra_id_\d+>|\[new_id_\d+\]|<pad>"),
    ),
)

#: mT5, unlike T5, never scales the logits.
MT5 = dataclasses.replace(
    T5,
    title="mT5",
    model_types=("mt5",),
    architecture="MT5ForConditionalGeneration",
    former_architectures=(),
    options={
        **_FEED_FORWARD,
        "feed_forward_proj": dataclasses.replace(_FEED_FORWARD["feed_forward_proj"], default="gated-gelu"),
    },
)

FAMILIES = (MARIAN, M2M_100, MBART, T5, MT5)
