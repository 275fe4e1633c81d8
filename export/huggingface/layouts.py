"""The layouts of Hugging Face's decoders: what transformers calls the fields and the weights of a `LanguageModel`.

A new layout is an entry of `LAYOUTS`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

#: Keras layers that one module of transformers holds: their paths as attributes.
Paths = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Layout:
    """What one architecture of transformers has, and its names.

    Fields of a model are those of `TransformerConfig` and the sizes that `export.settings` adds.

    Attributes:
        architecture: class of transformers.
        constants: field of config.json -> its value in every file.
        fields: field of config.json -> field of the model.
        activations: activation of the model -> its name in config.json.
        required: field of the model -> the value that it must have.
        equal: field of the model -> the field whose value it must have.
        modules: module -> the layers of the model whose weights it holds, joined along the last axis.
        block: name of the decoder layer number `{}`.
        block_modules: module in a decoder layer -> the layers of ours, as in `modules`.
        has_transposed_kernels: whether the matrix of a projection is `(outputs, inputs)`.
    """

    architecture: str
    constants: Mapping[str, Any]
    fields: Mapping[str, str]
    activations: Mapping[str, str]
    required: Mapping[str, Any]
    equal: Mapping[str, str]
    modules: Mapping[str, Paths]
    block: str
    block_modules: Mapping[str, Paths]
    has_transposed_kernels: bool


#: The output layer. A file does not contain it if it shares the matrix of the embedding.
OUTPUT = "lm_head"
#: Fields that config.json and generation_config.json have.
IDS = {"pad_token_id": "pad_id", "bos_token_id": "bos_id", "eos_token_id": "eos_id"}

_FIELDS = {"vocab_size": "vocab_size", "tie_word_embeddings": "is_tied", **IDS}
_CONSTANTS = {"torch_dtype": "float32"}
_ACTIVATIONS = {"swish": "silu", **{name: name for name in ("silu", "relu", "gelu", "tanh", "sigmoid")}}
_REQUIRED = {
    "norm_first": True,
    "final_norm": True,
    "qk_norm": False,
    "soft_cap": None,
    "window": None,
    "embedding_norm": False,
    "logits_scale": 1.0,
    "logits_bias": False,
}
_QUERY, _KEY, _VALUE, _OUTPUT = (
    f"self_attention.sublayer.{name}_projection" for name in ("query", "key", "value", "output")
)

_LLAMA = Layout(
    architecture="LlamaForCausalLM",
    # Rotary positions have no maximum length. transformers requires a number and does not use it for them.
    constants={**_CONSTANTS, "model_type": "llama", "rope_theta": 10000.0, "max_position_embeddings": 2048},
    fields={
        **_FIELDS,
        "hidden_size": "d_model",
        "intermediate_size": "d_ff",
        "num_hidden_layers": "num_decoder_layers",
        "num_attention_heads": "num_heads",
        "num_key_value_heads": "num_kv_heads",
        "head_dim": "d_k",
        "hidden_act": "activation",
        "rms_norm_eps": "layer_norm_epsilon",
        "attention_bias": "use_bias",
        "mlp_bias": "use_bias",
        "attention_dropout": "attention_dropout",
    },
    activations={**_ACTIVATIONS, "gelu_tanh": "gelu_pytorch_tanh"},
    required={
        **_REQUIRED,
        "positions": "rotary",
        "norm": "rms",
        "feed_forward": "gated",
        "d_model % num_heads": 0,  # Also if `d_k` is given.
    },
    equal={"d_v": "d_k"},
    modules={"model.embed_tokens": ("embedding",), "model.norm": ("decoder.norm",), OUTPUT: ("logits.embedding",)},
    block="model.layers.{}",
    block_modules={
        "input_layernorm": ("self_attention.norm",),
        "self_attn.q_proj": (_QUERY,),
        "self_attn.k_proj": (_KEY,),
        "self_attn.v_proj": (_VALUE,),
        "self_attn.o_proj": (_OUTPUT,),
        "post_attention_layernorm": ("feed_forward.norm",),
        "mlp.gate_proj": ("feed_forward.sublayer.gate",),
        "mlp.up_proj": ("feed_forward.sublayer.inner",),
        "mlp.down_proj": ("feed_forward.sublayer.outer",),
    },
    has_transposed_kernels=True,
)

_GPT2 = Layout(
    architecture="GPT2LMHeadModel",
    constants={**_CONSTANTS, "model_type": "gpt2"},
    fields={
        **_FIELDS,
        "n_positions": "max_length",
        "n_embd": "d_model",
        "n_inner": "d_ff",
        "n_layer": "num_decoder_layers",
        "n_head": "num_heads",
        "activation_function": "activation",
        "layer_norm_epsilon": "layer_norm_epsilon",
        "embd_pdrop": "dropout",
        "resid_pdrop": "dropout",
        "attn_pdrop": "attention_dropout",
    },
    activations={**_ACTIVATIONS, "gelu_tanh": "gelu_new"},
    required={**_REQUIRED, "positions": "learned", "norm": "layer", "feed_forward": "plain", "use_bias": True},
    equal={"num_kv_heads": "num_heads", "d_k": "d_model / num_heads", "d_v": "d_model / num_heads"},
    modules={
        "transformer.wte": ("embedding",),
        "transformer.wpe": ("positions",),
        "transformer.ln_f": ("decoder.norm",),
        OUTPUT: ("logits.embedding",),
    },
    block="transformer.h.{}",
    block_modules={
        "ln_1": ("self_attention.norm",),
        "attn.c_attn": (_QUERY, _KEY, _VALUE),
        "attn.c_proj": (_OUTPUT,),
        "ln_2": ("feed_forward.norm",),
        "mlp.c_fc": ("feed_forward.sublayer.inner",),
        "mlp.c_proj": ("feed_forward.sublayer.outer",),
    },
    has_transposed_kernels=False,
)

LAYOUTS = (_LLAMA, _GPT2)
