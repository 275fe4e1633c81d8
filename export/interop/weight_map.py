"""Names of weights in other frameworks, and safetensors files."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.checks import needs


@dataclasses.dataclass(frozen=True)
class Naming:
    """Names of encoder and decoder weights in another framework.

    Attributes:
        prefix: prefix of `encoder.` and `decoder.`.
        attentions: self-attention and cross-attention of a layer.
        feed_forward: the inner and the outer projection.
        encoder_norms: norms of an encoder layer, in the order of its sub-layers.
        decoder_norms: norms of a decoder layer, in the order of its sub-layers.
    """

    prefix: str
    attentions: tuple[str, str]
    feed_forward: tuple[str, str]
    encoder_norms: tuple[str, ...]
    decoder_norms: tuple[str, ...]


class ForeignWeight(NamedTuple):
    """A variable of this package and its name in another framework."""

    name: str
    variable: Any  # A Keras variable.
    is_transposed: bool  # PyTorch stores matrices as (outputs, inputs).
    stream_axis: int | None  # Axis of `variable` whose features are those of the residual stream, if any.


def stack_weights(model, naming: Naming) -> Iterator[ForeignWeight]:
    """The weights of encoder and decoder, with separate query, key and value projections."""
    for kind, norms in (("encoder", naming.encoder_norms), ("decoder", naming.decoder_norms)):
        stack = getattr(model, kind)
        for i, layer in enumerate(stack.layers):
            yield from _layer(layer, f"{naming.prefix}{kind}.layers.{i}.", naming, norms)
        if stack.norm is not None:
            yield from _norm(stack.norm, f"{naming.prefix}{kind}.norm")


def _layer(layer, prefix, naming, norms):
    attentions = [layer.self_attention] + ([layer.cross_attention] if hasattr(layer, "cross_attention") else [])
    for residual, name in zip(attentions, naming.attentions, strict=False):
        attention = residual.sublayer
        yield from _dense(attention.query_projection, f"{prefix}{name}.q_proj", reads=True)
        yield from _dense(attention.key_projection, f"{prefix}{name}.k_proj", reads=True)
        yield from _dense(attention.value_projection, f"{prefix}{name}.v_proj", reads=True)
        yield from _dense(attention.output_projection, f"{prefix}{name}.out_proj", reads=False)
    inner, outer = (prefix + name for name in naming.feed_forward)
    yield from _dense(layer.feed_forward.sublayer.inner, inner, reads=True)
    yield from _dense(layer.feed_forward.sublayer.outer, outer, reads=False)
    for residual, name in zip([*attentions, layer.feed_forward], norms, strict=True):
        yield from _norm(residual.norm, prefix + name)


def _dense(dense, name, reads):
    """A projection that reads from the residual stream, or one that writes to it."""
    yield ForeignWeight(f"{name}.weight", dense.kernel, True, 0 if reads else 1)
    if dense.use_bias:
        yield ForeignWeight(f"{name}.bias", dense.bias, False, None if reads else 0)


def _norm(norm, name):
    yield ForeignWeight(f"{name}.weight", norm.gamma, False, 0)
    yield ForeignWeight(f"{name}.bias", norm.beta, False, 0)


def weight_problems(
    weights: list[ForeignWeight],
    tensors: Mapping[str, np.ndarray],
    file: str,
    in_file: Callable[[str], str] = str,
) -> list[str]:
    """Lists missing weights and wrong shapes. `in_file` maps a foreign name to the name in the file, for messages."""
    missing = dict.fromkeys(in_file(weight.name) for weight in weights if weight.name not in tensors)
    problems = [f"{file} lacks {', '.join(missing)}"] if missing else []
    for weight in weights:
        expected = tuple(weight.variable.shape)[:: -1 if weight.is_transposed else 1]
        if weight.name in tensors and tensors[weight.name].shape != expected:
            problems.append(
                f"{weight.name} must have shape {expected}. Received: {tensors[weight.name].shape} in {file}"
            )
    return problems


def assign_weights(model, weights: list[ForeignWeight], tensors: Mapping[str, np.ndarray]) -> None:
    """Assigns foreign tensors, in which `weight_problems` finds no problem, to all trainable variables of a model."""
    named = {weight.variable.path for weight in weights}
    forgotten = [variable.path for variable in model.trainable_variables if variable.path not in named]
    if forgotten:
        raise ValueError(f"`weights` must contain all trainable variables. Missing: {', '.join(forgotten)}")
    for weight in weights:
        tensor = tensors[weight.name].astype("float32")
        weight.variable.assign(tensor.T if weight.is_transposed else tensor)


def safetensors():
    """The module `safetensors.numpy`, or a `ValueError` with the command that installs it."""
    with needs("huggingface"):
        import safetensors.numpy
    return safetensors.numpy


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file. Raises `ValueError` for others, and for dtypes that NumPy does not support."""
    library = safetensors()
    try:
        return library.load_file(path)
    except MemoryError:
        raise
    except Exception as error:  # The library's exception is not a ValueError.
        raise ValueError(f"{path.name} must be a safetensors file with dtypes that NumPy supports ({error})") from error
