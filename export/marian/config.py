"""Conversion between the configuration of Hugging Face's `MarianMTModel` and `TransformerConfig`."""

from collections.abc import Mapping, Sequence

from keras_transformer.checks import one_of
from keras_transformer.config import TransformerConfig

#: Keras names of Marian's activations.
_ACTIVATIONS = {"swish": "silu", **{name: name for name in ("silu", "relu", "gelu", "tanh", "sigmoid")}}
#: Sizes that encoder and decoder share in this package, with Marian's names, which `encoder_` or `decoder_` precedes.
_SIZES = {"num_heads": "attention_heads", "d_ff": "ffn_dim"}
_STACKS = ("encoder", "decoder")
_DEPTHS = ("encoder_layers", "decoder_layers")
#: Dropout rates, with the defaults of `MarianConfig`.
_DROPOUTS = {"dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0}
_IDS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
#: Required values. A field may be missing.
_REQUIRED = {
    "model_type": "marian",
    "architectures": ["MarianMTModel"],
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
#: Values in every `MarianMTModel`.
_FIXED = {
    "norm_first": False,
    "final_norm": False,
    "positions": "sinusoidal",
    "use_bias": True,
    "share_embeddings": True,
    "layer_norm_epsilon": 1e-5,
}


def read_config(config: Mapping) -> tuple[dict | None, list[str]]:
    """Converts the contents of config.json to fields of `TransformerConfig`, without the vocabulary size.

    Returns:
        The fields, or `None` if they cannot be determined; and a list of problems.
    """
    problems = [
        f"`{name}` must be {value!r}; other architectures are not supported. Received: {config[name]!r}"
        for name, value in _REQUIRED.items()
        if config.get(name, value) not in (value, None)
    ]
    sizes = _size_problems(config)
    if sizes or config["model_type"] != _REQUIRED["model_type"]:
        return None, problems + sizes
    fields = {
        **{ours: config[f"encoder_{theirs}"] for ours, theirs in _SIZES.items()},
        **_depths(config),
        **{name: config.get(name, default) for name, default in _DROPOUTS.items()},
        **_FIXED,
        "d_model": config["d_model"],
        "activation": _ACTIVATIONS[config.get("activation_function", "gelu")],
        "position_layout": "halves",
        "scale_embedding": config.get("scale_embedding", False),
        "logits_bias": True,
    }
    size = config["vocab_size"]
    outside = [name for name in _IDS if not 0 <= config[name] < size]
    problems += [f"`{name}` must be in [0, {size}). Received: {config[name]}" for name in outside]
    try:
        TransformerConfig(vocab_size=size, **fields)
    except ValueError as error:
        return None, problems + [line.removeprefix("- ") for line in str(error).splitlines()[1:]]
    return fields, problems


def _depths(config):
    encoder, decoder = (config[name] for name in _DEPTHS)
    if encoder == decoder:
        return {"num_layers": encoder}
    return {"num_encoder_layers": encoder, "num_decoder_layers": decoder}


def _size_problems(config):
    """Problems with the fields that determine the sizes and the activation."""
    problems = [] if "model_type" in config else ["config.json must have `model_type`"]
    numbers = ["d_model", "vocab_size", *_IDS, *_DEPTHS, *(f"{s}_{n}" for n in _SIZES.values() for s in _STACKS)]
    wrong = [name for name in numbers if type(config.get(name)) is not int]
    problems += [f"`{name}` must be int. Received: {config.get(name)!r}" for name in wrong]
    for size in _SIZES.values():
        ours, theirs = f"encoder_{size}", f"decoder_{size}"
        if config.get(ours) != config.get(theirs):
            problems.append(f"`{theirs}` must equal `{ours}`. Received: {config.get(theirs)} and {config.get(ours)}")
    activation = config.get("activation_function", "gelu")
    return [*problems, *one_of([*_ACTIVATIONS], activation_function=activation)]


def inexpressible(config: TransformerConfig) -> list[str]:
    """Lists the problems of a configuration that `MarianMTModel` does not support."""
    problems = [
        f"`{name}` must be {value!r}. Received: {name}={getattr(config, name)!r}"
        for name, value in _FIXED.items()
        if getattr(config, name) not in (value, None)  # A final norm of `None` is the value of `norm_first`.
    ]
    if any(config.num_heads * width != config.d_model for width in config.head_dims):
        problems.append(f"`d_k` and `d_v` must be d_model / num_heads. Received: {config.head_dims}")
    problems += [*one_of([*_ACTIVATIONS], activation=config.activation), *config.variant_problems()]
    return [*dict.fromkeys(problems)]


def write_config(config: TransformerConfig, forbidden: Sequence[int] = ()) -> dict:
    """The contents of config.json, for a configuration without problems. For `forbidden` see `special_ids`."""
    sizes = {f"{stack}_{theirs}": getattr(config, ours) for ours, theirs in _SIZES.items() for stack in _STACKS}
    return {
        **_REQUIRED,
        **sizes,
        **dict(zip(_DEPTHS, config.depths, strict=True)),
        **{name: getattr(config, name) for name in _DROPOUTS},
        "activation_function": config.activation,
        "d_model": config.d_model,
        "is_encoder_decoder": True,
        "max_position_embeddings": 1024,
        "scale_embedding": config.scale_embedding,
        "torch_dtype": "float32",
        "vocab_size": config.vocab_size,
        "decoder_vocab_size": config.vocab_size,
        **special_ids(config, forbidden),
    }


def special_ids(config: TransformerConfig, forbidden: Sequence[int] = ()) -> dict:
    """The special ids, for config.json and generation_config.json. `forbidden` tokens are never generated either."""
    return {
        "bad_words_ids": [[i] for i in (config.pad_id, config.bos_id, *forbidden)],
        "bos_token_id": config.bos_id,
        "decoder_start_token_id": config.bos_id,
        "eos_token_id": config.eos_id,
        "forced_eos_token_id": config.eos_id,
        "pad_token_id": config.pad_id,
    }
