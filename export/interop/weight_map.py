"""Weights of other programs: what they call ours, and safetensors files of them."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Naming:
    """What another program calls the parts of encoder and decoder.

    Attributes:
        prefix: before `encoder.` and `decoder.`.
        attentions: of a decoder layer: to itself, to the memory.
        feed_forward: the inner and the outer projection.
        encoder_norms: of a layer, in the order of its sub-layers.
        decoder_norms: of a layer, in the order of its sub-layers.
    """

    prefix: str
    attentions: tuple[str, str]
    feed_forward: tuple[str, str]
    encoder_norms: tuple[str, ...]
    decoder_norms: tuple[str, ...]


class ForeignWeight(NamedTuple):
    """One of our variables and what it is elsewhere."""

    name: str
    variable: object
    is_transposed: bool  # PyTorch's matrices map columns to rows.
    stream_axis: int | None  # Of our variable: the axis of `d_model` that lies along the residual stream.


def stack_weights(model, naming: Naming) -> Iterator[ForeignWeight]:
    """The weights of encoder and decoder, by their foreign names; the queries', keys' and values' each for itself.

    Args:
        model: a `Transformer`.
        naming: the other program's.

    Yields:
        `ForeignWeight`.
    """
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
    """A projection that reads the residual stream, or one that writes to it."""
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
    """What keeps the weights from being filled.

    Args:
        weights: ours.
        tensors: by their foreign names.
        file: its name, for messages.
        in_file: what a foreign name is a part of in the file.

    Returns:
        One sentence a fault.
    """
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
    """Gives a model's variables the values of the foreign tensors, of which `weight_problems` has found none.

    Args:
        model: whose every trainable variable must be among them.
        weights: ours.
        tensors: by their foreign names.

    Raises:
        ValueError: naming the variables that would stay random.
    """
    named = {weight.variable.path for weight in weights}
    forgotten = [variable.path for variable in model.trainable_variables if variable.path not in named]
    if forgotten:
        raise ValueError(f"Nothing is imported for {', '.join(forgotten)}")
    for weight in weights:
        tensor = tensors[weight.name].astype("float32")
        weight.variable.assign(tensor.T if weight.is_transposed else tensor)


def safetensors():
    """The module `safetensors.numpy`.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ValueError("safetensors is not installed: pip install 'keras-transformer-kit[huggingface]'") from error
    return safetensors.numpy


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file.

    Args:
        path: the file.

    Raises:
        ValueError: if it is none, or its numbers are of a type that NumPy lacks.
    """
    library = safetensors()
    try:
        return library.load_file(path)
    except Exception as error:  # Of the library's own class, which is no ValueError.
        raise ValueError(f"{path.name} is no whole safetensors file of numbers that NumPy has ({error})") from error
