"""Weights of PyTorch's `nn.Transformer`, from safetensors files."""

import re
import warnings
from pathlib import Path

import numpy as np

from keras_transformer.checks import require
from keras_transformer.config import TransformerConfig
from keras_transformer.export.interop.weight_map import (
    assign_weights,
    foreign_weights,
    listed,
    projections,
    read_tensors,
    unused_names,
    weight_problems,
)
from keras_transformer.models import Transformer

#: Separate names of the projections that PyTorch concatenates.
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
    """Creates a `Transformer` with the weights of a PyTorch module that contains a `torch.nn.Transformer`.

    `nn.Transformer` ends both stacks with a normalization, with either value of its `norm_first`: `config` must have
    `final_norm=True`. It contains no embeddings, positions or output layer. `config` must describe those of the
    surrounding module: whether embeddings are scaled, the kind of positions, and whether the logits have a bias.

    Args:
        path: a safetensors file of the module's `state_dict()`.
        config: the model's configuration.
        prefix: prefix of the names of `nn.Transformer`'s weights, such as `"transformer."`.
        source_embedding: name of the source embedding. The file may omit it if embeddings are shared.
        target_embedding: name of the target embedding. If embeddings are shared, the others must equal it.
        generator: name of the output layer, without `.weight` and `.bias`. The file may omit its weight if embeddings
            are shared.
        source_positions: name of the table of learned source positions.
        target_positions: name of the table of learned target positions.

    Returns:
        The model.

    Raises:
        ValueError: if weights are missing, have another shape, differ although they are shared, or belong to the names
            above but not to the model. The message lists all of them.

    Warns:
        UserWarning: if the file contains other tensors, which are ignored.

    Example:

        config = TransformerConfig(vocab_size=8000, norm_first=True, final_norm=True)
        model = import_torch_transformer("model.safetensors", config, prefix="transformer.")

    Reference:
        https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"No such file: {path}")
    require(config.variant_problems(), of="`nn.Transformer` does not have the parts of the configuration")
    tensors = _with_projections_apart(read_tensors(path))
    _require_prefix(prefix, tensors, path)
    model = Transformer(config)
    tables = [
        (target_embedding, "target_embedding.embeddings"),
        (source_embedding, "source_embedding.embeddings"),
        (f"{generator}.weight", "logits.embedding.embeddings"),
        (f"{generator}.bias", "logits.bias"),
        (source_positions, "source_positions.embeddings"),
        (target_positions, "target_positions.embeddings"),
    ]
    weights = foreign_weights(model, [*tables, *_modules(prefix).items()])
    if not config.use_bias:  # PyTorch then omits the biases of the normalizations too.
        zeros = {w.names[0]: np.zeros(w.variable.shape) for w in weights if w.variable.name == "beta"}
        tensors = {**zeros, **tensors}
    unused = dict.fromkeys(map(_in_file, unused_names(weights, tensors)))
    require(
        weight_problems(weights, tensors, path.name, _in_file),
        _left_over_problems(unused, {name for name, _ in tables}, prefix, path),
        of=f"{path} does not fit the configuration",
    )
    if unused:
        warnings.warn(f"Ignored weights of {path.name}: {', '.join(unused)}", stacklevel=2)
    assign_weights(model, weights, tensors)
    return model


def _modules(prefix) -> dict[str, str]:
    """The modules of `nn.Transformer`; see `foreign_weights`."""
    modules = {f"{prefix}{stack}.norm": f"{stack}.norm" for stack in ("encoder", "decoder")}
    parts = {"linear1": "feed_forward.sublayer.inner", "linear2": "feed_forward.sublayer.outer"}
    attentions = {"self_attn": "self_attention", "multihead_attn": "cross_attention"}
    for stack, count in (("encoder", 1), ("decoder", 2)):
        layer, names = f"{prefix}{stack}.layers.{{i}}", [*attentions.items()][:count]
        for theirs, ours in names:
            parts |= projections(theirs, ours, "out_proj")
        norms = [*(ours for _, ours in names), "feed_forward"]
        parts |= {f"norm{number}": f"{part}.norm" for number, part in enumerate(norms, 1)}
        modules |= {f"{layer}.{theirs}": f"{stack}.layers.{{i}}.{ours}" for theirs, ours in parts.items()}
    return modules


def _stacks(prefix):
    return f"{prefix}encoder.", f"{prefix}decoder."


def _require_prefix(prefix, tensors, path):
    if not any(name.startswith(_stacks(prefix)) for name in tensors):
        raise ValueError(
            f"{path} must contain names that begin with {' or '.join(_stacks(prefix))}. Received: prefix={prefix!r}, "
            f"names such as {', '.join(sorted(map(_in_file, tensors))[:5])}"
        )


def _left_over_problems(unused, known, prefix, path):
    """Unused tensors that have a known name or belong to the stacks."""
    names = [name for name in unused if name in known or name.startswith(_stacks(prefix))]
    if names:
        yield f"{path.name} contains weights that the model does not have: {listed(names)}"


def _in_file(name):
    """The name in the file of a tensor that `_with_projections_apart` has split."""
    return _APART.sub(".in_proj_", name)


def _with_projections_apart(tensors):
    """Splits the query, key and value projections, which PyTorch concatenates."""
    apart = {}
    for name, tensor in tensors.items():
        attention, dot, kind = name.rpartition(".in_proj_")
        if dot:
            thirds = np.split(tensor, 3) if len(tensor) % 3 == 0 else [tensor] * 3
            apart |= {f"{attention}.{x}_proj.{kind}": third for x, third in zip("qkv", thirds, strict=True)}
        else:
            apart[name] = tensor
    return apart
