"""The functional model that a user gives in place of the source ids and their embedding: its check and its input."""

from typing import Any

import keras


def checked_front_end(source, config):
    """Returns the model in place of the embedding, or raises an error if it does not fit."""
    if source is None:
        return None
    # Subclassed models, and `keras.Sequential` without an input, have no outputs.
    outputs = getattr(source, "outputs", None) if isinstance(source, keras.Model) else None
    output: Any = outputs and (outputs[0] if isinstance(source, keras.Sequential) else source.output)
    if not isinstance(output, keras.KerasTensor):
        raise ValueError(
            "`source` must be a functional model with one output, such as "
            f"keras.Sequential([keras.Input(shape), layer]). Received: source={source!r}"
        )
    if config.source_vocab_size:
        raise ValueError(
            "`source_vocab_size` must not be given with `source`, which replaces the embedding of source ids. "
            f"Received: source_vocab_size={config.source_vocab_size}"
        )
    shape = output.shape
    if len(shape) != 3 or shape[-1] != config.d_model:
        raise ValueError(
            f"The output of `source` must have shape (batch, length, d_model={config.d_model}). Received: {shape}"
        )
    if config.max_length and (shape[1] or 0) > config.max_length:
        raise ValueError(
            f"The output of `source` must have at most `max_length`={config.max_length} positions. Received: {shape[1]}"
        )
    return source


def source_input(source, prefix=""):
    """Makes the symbolic source of a model: token ids, or the input of the user's model.

    Args:
        source: the user's model, or `None`.
        prefix: start of the names of several inputs. Keras requires that an input of a model has the name of its key.
    """
    if source is None:
        return keras.Input((None,), dtype="int32", name="source")
    given = source.inputs[0] if isinstance(source, keras.Sequential) else source.input

    def symbolic(x):
        return keras.Input(x.shape[1:], dtype=x.dtype, name="source" if x is given else f"{prefix}{x.name}")

    return keras.tree.map_structure(symbolic, given)
