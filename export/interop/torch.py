"""Weights of PyTorch's `nn.Transformer`, from safetensors files."""

import re
import warnings
from pathlib import Path

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.export.interop.weight_map import (
    ForeignWeight,
    Naming,
    assign_weights,
    read_tensors,
    stack_weights,
    weight_problems,
)
from keras_transformer.models import Transformer

#: Of the names of projections that PyTorch keeps one above the other.
_APART = re.compile(r"\.[qkv]_proj\.(?=(weight|bias)$)")


def import_torch_transformer(
    path: str | Path,
    config: TransformerConfig,
    prefix: str = "",
    source_embedding: str = "source_embedding.weight",
    target_embedding: str = "target_embedding.weight",
    generator: str = "generator",
    source_positions: str = "source_positions.weight",
    target_positions: str = "target_positions.weight",
) -> Transformer:
    """A `Transformer` with the weights of a PyTorch module around `torch.nn.Transformer`.

    PyTorch's stacks end in a normalisation whatever its `norm_first`: `final_norm=True`. Its module has neither
    embeddings nor positions nor logits, so `config` says what the module around it computes: whether embeddings are
    scaled, which positions are added, whether the logits have a bias.

    Args:
        path: a safetensors file of the module's `state_dict()`.
        config: sizes and arithmetic.
        prefix: of the names of `nn.Transformer`'s weights, such as `"transformer."`.
        source_embedding: name of the source's embedding. Where embeddings are shared the file may lack it.
        target_embedding: name of the target's embedding, of which the others are copies where embeddings are shared.
        generator: name of the linear layer that makes the logits, without `.weight` and `.bias`. Where embeddings
            are shared the file may lack its weight.
        source_positions: name of the table of the source's learned positions.
        target_positions: name of the table of the target's learned positions.

    Returns:
        The model.

    Raises:
        ValueError: naming every weight that is missing, of another shape, no copy where it should be one, or left
            over of the module and the names above. What else the file holds is named by a warning.

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
    tensors = _with_projections_apart(read_tensors(path))
    _require_prefix(prefix, tensors, path)
    model = Transformer(config)
    tables = _tables(model, source_embedding, target_embedding, generator, source_positions, target_positions)
    weights = [ForeignWeight(name, table, False, 1) for name, table in tables if table is not None]
    weights += [*_bias(model, generator), *stack_weights(model, naming)]
    if not config.use_bias:  # PyTorch then leaves the normalisations' biases out as well.
        zeros = {w.name: np.zeros(w.variable.shape) for w in weights if w.variable.name == "beta"}
        tensors = {**zeros, **tensors}
    copies = [source_embedding, f"{generator}.weight"] if config.share_embeddings else []
    unused = dict.fromkeys(_in_file(name) for name in sorted({*tensors} - {w.name for w in weights} - {*copies}))
    known = {f"{generator}.bias", *(name for name, _ in tables)}
    left_over = [name for name in unused if name in known or name.startswith(_stacks(prefix))]
    problems = weight_problems(weights, tensors, path.name, _in_file) + _copy_problems(
        copies, target_embedding, tensors
    )
    if left_over:
        problems.append(f"{path.name} holds what such a model lacks: {', '.join(left_over)}")
    if problems:
        raise ValueError(
            f"{path} does not fit the configuration:\n" + "\n".join(f"- {problem}" for problem in problems)
        )
    if unused:
        warnings.warn(f"Not used of {path.name}: {', '.join(unused)}", stacklevel=2)
    assign_weights(model, weights, tensors)
    return model


def _stacks(prefix):
    return f"{prefix}encoder.", f"{prefix}decoder."


def _require_prefix(prefix, tensors, path):
    if not any(name.startswith(_stacks(prefix)) for name in tensors):
        raise ValueError(
            f"{path} holds nothing whose name begins with {' or '.join(_stacks(prefix))}. Received: prefix={prefix!r}, "
            f"and names such as {', '.join(sorted(map(_in_file, tensors))[:5])}"
        )


def _tables(model, source_embedding, target_embedding, generator, source_positions, target_positions):
    """Names of the matrices around PyTorch's module, which may be one, and our variables, or `None`."""
    is_apart, is_learned = not model.config.share_embeddings, model.config.positions == "learned"
    return [
        (target_embedding, model.target_embedding.embeddings),
        (source_embedding, model.source_embedding.embeddings if is_apart else None),
        (f"{generator}.weight", model.logits.embedding.embeddings if is_apart else None),
        (source_positions, model.source_positions.embeddings if is_learned else None),
        (target_positions, model.target_positions.embeddings if is_learned else None),
    ]


def _bias(model, generator):
    if model.config.logits_bias:
        yield ForeignWeight(f"{generator}.bias", model.logits.bias, False, None)


def _copy_problems(copies, embedding, tensors):
    return [
        f"{name} must equal {embedding} where embeddings are shared"
        for name in copies
        if {name, embedding} <= {*tensors} and not np.array_equal(tensors[name], tensors[embedding])
    ]


def _in_file(name):
    """What PyTorch calls the tensor that one of `_with_projections_apart` is a part of."""
    return _APART.sub(".in_proj_", name)


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
