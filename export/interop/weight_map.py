"""Names of weights in other frameworks, and safetensors files."""

import functools
import itertools
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.checks import needs
from keras_transformer.export.interop.stored import Tensor, stored_tensors

#: The number of a layer in its stack, in names and paths.
_NUMBER = ".{i}"
#: Projections that write to the residual stream.
_WRITE = ("output_projection", "outer")


class ForeignWeight(NamedTuple):
    """A variable of this package and its names in another framework."""

    names: tuple[str, ...]  # A shared weight may have several, of which a file may contain only some.
    variable: Any  # A Keras variable.
    is_transposed: bool  # PyTorch stores matrices as (outputs, inputs).
    stream_axis: int | None  # Axis of `variable` whose features are those of the residual stream, if any.


def foreign_weights(model, modules: Iterable[tuple[str, str]]) -> list[ForeignWeight]:
    """The weights of a model with their names in another framework.

    Args:
        model: a model.
        modules: pairs of the name of a module in the other framework and the path of the layer in the model, such as
            `encoder.layers.{i}.feed_forward.norm`; or of the name of a weight and the path of the variable. `{i}`
            stands for the number of each layer of a stack. Layers and variables that the model does not have are
            skipped.
    """
    found: dict[int, tuple[list[str], Any, str]] = {}
    for module, path in modules:
        for name, variable, variable_path in _variables(model, module, path):
            found.setdefault(id(variable), ([], variable, variable_path))[0].append(name)
    return [
        ForeignWeight(tuple(names), variable, path.endswith(".kernel"), _stream_axis(path))
        for names, variable, path in found.values()
    ]


def _variables(model, module, path) -> Iterator[tuple[str, Any, str]]:
    """The variables at a path, each with its foreign name and its path."""
    stack, dot, rest = path.partition(f"{_NUMBER}.")
    if dot:
        for i, layer in enumerate(operator.attrgetter(stack)(model)):
            yield from _variables(layer, module.replace(_NUMBER, f".{i}"), rest)
        return
    of, _, name = path.rpartition(".")
    part = getattr(operator.attrgetter(of)(model) if of else model, name, None)
    weights = next((weights for kind, weights in weights_of_layers().items() if isinstance(part, kind)), None)
    if weights is None and hasattr(part, "assign"):
        yield module, part, path
    for name, attribute in (weights or {}).items():
        if getattr(part, attribute) is not None:
            yield f"{module}.{name}", getattr(part, attribute), f"{path}.{attribute}"


@functools.cache
def weights_of_layers() -> dict[type, dict[str, str]]:
    """Kind of layer -> name of a weight in PyTorch -> attribute of the layer."""
    import keras  # Imported here, so that errors in files are found in less than a second.

    from keras_transformer.layers import LearnedPositionalEmbedding, RelativePositionBias

    return {
        keras.layers.Dense: {"weight": "kernel", "bias": "bias"},
        keras.layers.LayerNormalization: {"weight": "gamma", "bias": "beta"},
        keras.layers.RMSNormalization: {"weight": "scale"},
        keras.layers.Embedding: {"weight": "embeddings"},
        LearnedPositionalEmbedding: {"weight": "embeddings"},
        RelativePositionBias: {"weight": "embeddings"},
    }


def _stream_axis(path):
    layer, _, attribute = path.rpartition(".")
    writes = layer.endswith(_WRITE)
    axes = {"kernel": 1 if writes else 0, "bias": 0 if writes else None, "gamma": 0, "beta": 0, "embeddings": 1}
    return axes.get(attribute)


def projections(attention: str, path: str, output: str) -> dict[str, str]:
    """The projections of an attention, for `foreign_weights`.

    Args:
        attention: name of the attention in the other framework.
        path: path of the residual connection around ours.
        output: name of the output projection in the other framework.
    """
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", output: "output"}
    return {f"{attention}.{theirs}": f"{path}.sublayer.{ours}_projection" for theirs, ours in names.items()}


def weight_problems(
    weights: list[ForeignWeight],
    tensors: Mapping[str, Tensor],
    file: str,
    in_file: Callable[[str], str] = str,
) -> list[str]:
    """Lists missing weights, wrong shapes, and shared weights that differ.

    Args:
        weights: the weights.
        tensors: the tensors of the file.
        file: its name.
        in_file: maps a foreign name to the name in the file, for messages.
    """
    missing = [in_file(weight.names[0]) for weight in weights if not {*weight.names} & {*tensors}]
    problems = [f"{file} lacks {listed(missing)}"] if missing else []
    misshapen: defaultdict[tuple, list[str]] = defaultdict(list)
    for weight in weights:
        expected = tuple(weight.variable.shape)[:: -1 if weight.is_transposed else 1]
        first, *others = [name for name in weight.names if name in tensors] or [None]
        if first and tensors[first].shape != expected:
            misshapen[expected, tensors[first].shape].append(first)
        problems += [
            f"{name} must equal {first} because the matrix is shared"
            for name in others
            if not np.array_equal(tensors[name], tensors[first])
        ]
    return problems + [
        f"{listed(names)} must have shape {expected}. Received: {received} in {file}"
        for (expected, received), names in misshapen.items()
    ]


def listed(names: Iterable[str]) -> str:
    """Lists the names of weights. One entry stands for the same weight of several layers.

    >>> listed(["layers.0.k.bias", "layers.2.k.bias", "layers.1.k.bias", "layers.4.k.bias", "layers.3.q.bias", "norm"])
    'layers.{0-2,4}.k.bias, layers.3.q.bias, norm'
    """
    layers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for name in names:
        match = re.fullmatch(r"(.*?)\.(\d+)(\..*)", name)
        before, number, after = match.groups() if match else (name, None, "")
        layers[before, after] |= {int(number)} if number else set()
    return ", ".join(f"{before}.{_ranges(of)}{after}" if of else before for (before, after), of in layers.items())


def _ranges(numbers):
    """The text of some numbers, such as `{0-2,4}`, or `3` for one."""
    if len(numbers) == 1:
        return str(*numbers)
    runs = itertools.groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in ([*pairs] for _, pairs in runs)]
    return "{" + ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends) + "}"


def unused_names(weights: list[ForeignWeight], tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that belong to no weight."""
    return sorted({*tensors}.difference(*(weight.names for weight in weights)))


def assign_weights(model, weights: list[ForeignWeight], tensors: Mapping[str, Tensor]) -> None:
    """Assigns foreign tensors, in which `weight_problems` finds no problem, to all trainable variables of a model."""
    named = {weight.variable.path for weight in weights}
    forgotten = [variable.path for variable in model.trainable_variables if variable.path not in named]
    if forgotten:
        raise ValueError(f"`weights` must contain all trainable variables. Missing: {', '.join(forgotten)}")
    for weight in weights:
        tensor = np.asarray(next(tensors[name] for name in weight.names if name in tensors), "float32")
        weight.variable.assign(tensor.T if weight.is_transposed else tensor)


def safetensors():
    """The module `safetensors.numpy`, or a `ValueError` with the command that installs it."""
    with needs("huggingface"):
        import safetensors.numpy
    return safetensors.numpy


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file. Raises `ValueError` for others, and for dtypes that NumPy does not support."""
    return {name: np.asarray(tensor) for name, tensor in stored_tensors(path).items()}
