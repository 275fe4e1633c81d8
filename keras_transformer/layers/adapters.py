"""Adapters: low-rank matrices (LoRA) of the projections and embeddings of a layer, by name."""

import collections
import dataclasses
import fnmatch
import re

import keras
import numpy as np
from keras import ops

from keras_transformer.checks import require

#: Keras layers that support LoRA. `TokenEmbedding` is a `keras.layers.Embedding`.
ADAPTED = (keras.layers.Dense, keras.layers.EinsumDense, keras.layers.Embedding)


@dataclasses.dataclass
class Adapter:
    """Low-rank matrices A and B of some parts of a layer. A part adds `alpha / rank` · A B to its weight.

    Attributes:
        rank: number of columns of A and of rows of B.
        alpha: see above.
        targets: the patterns that chose the parts, or `None` for all parts.
        matrices: path of a part -> A and B, NumPy arrays.
    """

    rank: int
    alpha: float
    targets: list[str] | None
    matrices: dict[str, tuple[np.ndarray, ...]]

    def has_weights_of(self, other: "Adapter") -> bool:
        """Whether the weights that this adapter adds to the parts can take the values of another one."""
        return (self.rank, self.alpha, self.matrices.keys()) == (other.rank, other.alpha, other.matrices.keys())


class Adapters:
    """The adapters of a layer. At most one is active: its matrices are weights of the parts, and the others wait.

    Attributes:
        parts: path -> projection or embedding inside of the layer.
        shapes: path -> shape of the weight of the part.
        by_name: name -> `Adapter`. The values of the active one are in the weights.
        active: name of the active adapter, or `None`.
    """

    def __init__(self, layer):
        self._layer = layer
        self._frozen = []  # The weights that are frozen while an adapter is active.
        self.parts = {path: part for path, part in _paths(layer) if isinstance(part, ADAPTED)}
        self.shapes = {path: tuple(_weight(part).shape) for path, part in self.parts.items()}
        self.by_name: dict[str, Adapter] = {}
        self.active: str | None = None

    def new(self, rank, alpha, targets, a_initializer, b_initializer) -> Adapter:
        """Makes an adapter for the parts that match the targets."""
        initializers = [keras.initializers.get(x) for x in (a_initializer, b_initializer)]
        matrices = {}
        for path in self._matching(targets):
            shapes = _matrix_shapes(self.shapes[path], rank)
            values = (_array(init(shape, "float32")) for init, shape in zip(initializers, shapes, strict=True))
            matrices[path] = tuple(values)
        return Adapter(rank, rank if alpha is None else alpha, None if targets is None else [*targets], matrices)

    def _matching(self, targets):
        if targets is None:
            return [*self.shapes]
        if isinstance(targets, str) or not targets:
            raise ValueError(f"`targets` must be a list of names. Received: targets={targets!r}")
        if missing := [target for target in targets if not any(_matches(path, target) for path in self.shapes)]:
            raise ValueError(
                "`targets` must be in paths of projections or embeddings, such as "
                f"{[*self.shapes][-1]}. Received: targets={[*targets]}, without a match: {missing}"
            )
        return [path for path in self.shapes if any(_matches(path, target) for target in targets)]

    def current(self, name) -> Adapter:
        """The adapter of a name with the current values of its matrices."""
        adapter = self.by_name[name]
        if name != self.active:
            return adapter
        values = {path: tuple(map(_array, _matrices(self.parts[path]))) for path in adapter.matrices}
        return dataclasses.replace(adapter, matrices=values)

    def activate(self, name, adapter: Adapter | None = None) -> bool:
        """Makes an adapter active, or none.

        Args:
            name: name of the adapter, or `None`.
            adapter: the adapter, if it is new.

        Returns:
            Whether weights were added or removed.

        Raises:
            ValueError: if the parts cannot have the adapter. Nothing is changed then.
        """
        if name == self.active:
            return False
        old, new = self._stored(), adapter or self.by_name.get(name)
        if new is not None:
            require(self._refusals(new))
            self.by_name[name] = new
        stays = old is not None and new is not None and old.has_weights_of(new)
        if old is not None and not stays:
            self._remove_weights(old)
        if new is not None and not stays:
            self._add_weights(new)
        for path, values in new.matrices.items() if new is not None else ():
            for weight, value in zip(_matrices(self.parts[path]), values, strict=True):
                weight.assign(value)
        self.active = name
        return not stays

    def _stored(self):
        """The active adapter, or `None`, after the values of its weights are stored."""
        if self.active is None:
            return None
        self.by_name[self.active] = self.current(self.active)
        return self.by_name[self.active]

    def _refusals(self, adapter):
        """Why the parts cannot have an adapter, whatever its values are."""
        ours = {} if self.active is None else self.by_name[self.active].matrices
        if others := [path for path, part in self.parts.items() if part.lora_enabled and path not in ours]:
            yield (
                "LoRA must be added to a layer, or to one around it or inside of it, not to both. "
                f"Received: layer={self._layer.name}, with LoRA in {others}"
            )
        constraints = ("kernel_constraint", "embeddings_constraint")
        if bound := [path for path in adapter.matrices if any(getattr(self.parts[path], x, None) for x in constraints)]:
            yield f"LoRA must be added to weights without a constraint. Received: constraints of {bound}"

    def _add_weights(self, adapter):
        self._frozen = self._layer.trainable_weights
        for weight in self._frozen:
            weight.trainable = False
        for path in adapter.matrices:
            self.parts[path].enable_lora(adapter.rank, adapter.alpha, "zeros", "zeros")

    def _remove_weights(self, adapter):
        for path in adapter.matrices:
            part = self.parts[path]
            for name in _matrix_names(part):
                # `delattr` alone is public, but Keras collects garbage after each variable.
                part._untrack_variable(getattr(part, name))
                setattr(part, name, None)
                delattr(part, name)
            part.lora_enabled = False
            part.lora_rank = part.lora_alpha = None
        for weight in self._frozen:
            weight.trainable = True

    def merge(self):
        """Adds the matrices of the active adapter to the weights. No adapter is active then."""
        adapter = self.current(self.active)
        quantized = {path: _saved(self.parts[path]) for path in adapter.matrices if self.parts[path].quantization_mode}
        self.activate(None)
        for path, (a, b) in adapter.matrices.items():
            if path in quantized:
                self.parts[path].load_own_variables(quantized[path])
            else:  # The values that Keras saves are rounded to the compute dtype.
                _weight(self.parts[path]).assign_add(adapter.alpha / adapter.rank * (a @ b))

    def problems(self, adapter: Adapter, shapes: dict) -> list[str]:
        """Why an adapter from a file does not fit. `shapes` are those of the layer for which it was made."""
        parts = [
            f"{path}: {shapes.get(path, 'nothing')} in the file, {self.shapes.get(path, 'nothing')} here"
            for path in {**shapes, **self.shapes}
            if shapes.get(path) != self.shapes.get(path)
        ]
        return parts + [
            f"{path}: matrices of the shapes {a.shape} and {b.shape}"
            for path, (a, b) in adapter.matrices.items()
            if path not in shapes or (a.shape, b.shape) != _matrix_shapes(shapes[path], adapter.rank)
        ]


def _paths(layer, prefix="", seen=None):
    """Yields the paths and layers inside of a layer. A path is that of the weights, without the name of the layer.

    The generated names of Keras are numbered within their layer, because Keras numbers them within the process.
    """
    seen, used = set() if seen is None else seen, collections.Counter()
    # Keras has no public method that lists sub-layers.
    for part in layer._flatten_layers(include_self=False, recursive=False):
        name = re.sub(r"_\d+$", "", part.name)
        name = name if name.replace("_", "") == type(part).__name__.lower() else part.name
        path = f"{prefix}{name}_{used[name]}" if used[name] else prefix + name
        used[name] += 1
        if id(part) not in seen:
            seen.add(id(part))
            yield path, part
            yield from _paths(part, f"{path}/", seen)


def _matches(path, target):
    return fnmatch.fnmatchcase(f"/{path}/", f"*/{target}/*")


def _weight(part):
    return part.embeddings if isinstance(part, keras.layers.Embedding) else part.kernel


def _matrix_names(part):
    kind = "embeddings" if isinstance(part, keras.layers.Embedding) else "kernel"
    return f"lora_{kind}_a", f"lora_{kind}_b"


def _matrices(part):
    return [getattr(part, name) for name in _matrix_names(part)]


def _matrix_shapes(shape, rank):
    return (*shape[:-1], rank), (rank, shape[-1])


def _array(x):
    return np.array(ops.convert_to_numpy(x))


def _saved(part):
    """The values that Keras saves: with the matrices in the weight, quantized again."""
    values = {}
    part.save_own_variables(values)
    return values
