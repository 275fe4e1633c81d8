"""Agreement of the outputs of an exported program without a search with those of its Keras model."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_transformer.counting import counted

#: Maximum difference of a float32 output, relative to the largest output.
MOST_DIFFERENCE = 1e-4
#: Minimum similarity of the outputs of int8 and float16 programs.
LEAST_SIMILARITY = 0.999


@dataclasses.dataclass(frozen=True)
class KerasCall:
    """A Keras model whose call an exported program computes.

    Args:
        model: the model.
    """

    model: Any

    def run(self, inputs) -> list[np.ndarray]:
        """The outputs of the model."""
        return keras.tree.flatten(self.model.predict_on_batch(inputs))


@dataclasses.dataclass(frozen=True)
class OutputAgreement:
    """How the outputs of an exported program compare with those of its Keras model.

    Attributes:
        inputs: number of compared inputs.
        difference: the largest difference of an output value, relative to the largest value of that output.
        similarity: the lowest similarity of the outputs of an input; `None` for a float32 program.
    """

    inputs: int
    difference: float
    similarity: float | None = None

    def __str__(self):
        compared = f"outputs of {counted(self.inputs, 'input')}"
        if self.similarity is None:
            return f"{compared}: largest relative difference {self.difference:.1e}"
        return f"approximate: {compared}: lowest similarity {self.similarity:.5f}"

    @property
    def passed(self) -> bool:
        """Whether the export is accepted."""
        return self.difference < MOST_DIFFERENCE if self.similarity is None else self.similarity >= LEAST_SIMILARITY


def compare_outputs(
    expected: KerasCall, program, batches: list, is_approximate: bool = False, metric: Callable | None = None
) -> OutputAgreement:
    """Compares the outputs of `program.run`.

    Args:
        expected: the Keras model.
        program: the program.
        batches: inputs of the model.
        is_approximate: whether the program has other types than float32.
        metric: similarity of two lists of outputs, at most 1. Default: the cosine of all values.
    """
    differences, similarities = [], []
    for inputs in batches:
        both = expected.run(inputs), program.run(inputs)
        ours, theirs = ([np.asarray(x, "float64") for x in outputs] for outputs in both)
        differences += [
            np.abs(a - b).max(initial=0) / max(np.abs(a).max(initial=0), 1e-9)
            for a, b in zip(ours, theirs, strict=True)
        ]
        if is_approximate:
            similarities.append(float((metric or _cosine)(ours, theirs)))
    difference = float(np.max(differences))
    difference = difference if np.isfinite(difference) else np.inf
    return OutputAgreement(len(batches), difference, float(np.min(similarities)) if is_approximate else None)


def _cosine(ours, theirs):
    a, b = (np.concatenate([np.ravel(x) for x in outputs]) for outputs in (ours, theirs))
    norms = np.sqrt((a @ a) * (b @ b))
    return a @ b / norms if norms else float(np.array_equal(a, b))
