"""The config.json of Hugging Face's `MarianMTModel`, from a `TransformerConfig`."""

from collections.abc import Sequence

from keras_transformer.checks import one_of
from keras_transformer.config import TransformerConfig
from keras_transformer.export.importer.families import MARIAN

#: Fields with the same value in every `MarianMTModel`. The export permutes positions of the other layout, and logits
#: without a bias get one of zeros.
_FIXED = {
    **{name: value for name, value in MARIAN.fixed.items() if name not in ("position_layout", "logits_bias")},
    "share_embeddings": True,
    "tie_output": True,
}
_ACTIVATIONS = {fields["activation"]: name for name, fields in MARIAN.options["activation_function"].values.items()}


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
    encoder_layers, decoder_layers = config.depths
    return {
        "model_type": MARIAN.model_types[0],
        "architectures": [MARIAN.architecture],
        **MARIAN.required,
        "d_model": config.d_model,
        "encoder_layers": encoder_layers,
        "decoder_layers": decoder_layers,
        **{f"{stack}_attention_heads": config.num_heads for stack in ("encoder", "decoder")},
        **{f"{stack}_ffn_dim": config.d_ff for stack in ("encoder", "decoder")},
        **{theirs: getattr(config, ours) for ours, (theirs, _) in MARIAN.rates.items()},
        "activation_function": _ACTIVATIONS[config.activation],
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
