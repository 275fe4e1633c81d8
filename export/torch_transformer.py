"""Weights of PyTorch's `nn.Transformer`, from safetensors files."""

from pathlib import Path

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.export.foreign_weights import (
    ForeignWeight,
    Naming,
    fill,
    read_tensors,
    stack_weights,
    weight_faults,
)
from keras_transformer.models import Transformer


def import_torch_transformer(
    path: str | Path,
    config: TransformerConfig,
    prefix: str = "",
    source_embedding: str = "source_embedding.weight",
    target_embedding: str = "target_embedding.weight",
    generator: str = "generator",
) -> Transformer:
    """A `Transformer` with the weights of a PyTorch module around `torch.nn.Transformer`.

    PyTorch's stacks end in a normalisation whatever its `norm_first`: `final_norm=True`. Its module has neither
    embeddings nor positions nor logits, so `config` says what the module around it computes: whether embeddings are
    scaled, which positions are added, whether the logits have a bias.

    Args:
        path: a safetensors file of the module's `state_dict()`.
        config: sizes and arithmetic.
        prefix: of the names of `nn.Transformer`'s weights, such as `"transformer."`.
        source_embedding: name of the source's embedding; not looked at where embeddings are shared.
        target_embedding: name of the target's embedding, the only one where embeddings are shared.
        generator: name of the linear layer that makes the logits, without `.weight` and `.bias`; of a shared
            matrix only the bias is looked at.

    Returns:
        The model.

    Raises:
        ValueError: naming every weight that is missing, left over or of another shape.

    Example:

        config = TransformerConfig(vocab_size=8000, norm_first=True, final_norm=True)
        model = import_torch_transformer("model.safetensors", config, prefix="transformer.")

    Reference:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"No such file: {path}")
    naming = Naming(
        prefix=prefix,
        attentions=("self_attn", "multihead_attn"),
        feed_forward=("linear1", "linear2"),
        encoder_norms=("norm1", "norm2"),
        decoder_norms=("norm1", "norm2", "norm3"),
    )
    model = Transformer(config)
    tensors = _with_projections_apart(read_tensors(path))
    weights = [
        *_vocabulary_weights(model, source_embedding, target_embedding, generator),
        *stack_weights(model, naming),
    ]
    if not config.use_bias:  # PyTorch then leaves the normalisations' biases out as well.
        zeros = {w.name: np.zeros(w.variable.shape) for w in weights if w.variable.name == "beta"}
        tensors = {**zeros, **tensors}
    faults = weight_faults(weights, tensors, path.name)
    stacks = (f"{prefix}encoder.", f"{prefix}decoder.")
    unused = sorted(name for name in set(tensors) - {w.name for w in weights} if name.startswith(stacks))
    if unused:
        faults.append(f"{path.name} holds what such a model lacks: {', '.join(unused)}")
    if faults:
        raise ValueError(f"{path} does not fit the configuration:\n" + "\n".join(f"- {fault}" for fault in faults))
    fill(weights, tensors)
    return model


def _vocabulary_weights(model, source_embedding, target_embedding, generator):
    yield ForeignWeight(target_embedding, model.target_embedding.embeddings, False, 1)
    if not model.config.share_embeddings:
        yield ForeignWeight(source_embedding, model.source_embedding.embeddings, False, 1)
        yield ForeignWeight(f"{generator}.weight", model.logits.embedding.embeddings, False, 1)
    if model.config.logits_bias:
        yield ForeignWeight(f"{generator}.bias", model.logits.bias, False, None)


def _with_projections_apart(tensors):
    """PyTorch keeps the projections of queries, keys and values one above the other."""
    apart = {}
    for name, tensor in tensors.items():
        attention, dot, kind = name.rpartition(".in_proj_")
        if dot:
            thirds = np.split(tensor, 3) if len(tensor) % 3 == 0 else [tensor] * 3
            apart |= {f"{attention}.{x}_proj.{kind}": third for x, third in zip("qkv", thirds, strict=True)}
        else:
            apart[name] = tensor
    return apart
