"""What `export_model` accepts: models, strategies, formats and samples."""

import keras
import numpy as np

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export.format import Exported, generates_tokens
from keras_transformer.export.model_copy import copy_with_dtype, is_float32
from keras_transformer.export.programs import input_structure
from keras_transformer.export.verify.equality import random_batches, random_source_batches
from keras_transformer.models import LanguageModel
from keras_transformer.models.checks import checked_source, checked_strategy
from keras_transformer.text.lines import max_tokens

#: Formats of a model without tokenizers.
MODEL_FORMATS = ("saved_model", "onnx", "onnx_int8", "onnx_float16")


def checked_formats(formats) -> list[str]:
    """Checks the argument `formats` of `export_model`."""
    names = [formats] if isinstance(formats, str) else [*formats]
    if not names or len({*names}) < len(names) or not {*names} <= {*MODEL_FORMATS}:
        raise ValueError(
            f"`formats` must be different ones of {', '.join(MODEL_FORMATS)}. Received: formats={formats!r}"
        )
    return names


def checked_export(model, strategy, metric, prefix) -> Exported:
    """Checks the arguments of `export_model`. Returns the `Exported` of the model in float32."""
    if not isinstance(model, keras.Model) or not (generates_tokens(model) or getattr(model, "outputs", None)):
        raise ValueError(
            "`model` must be a model of this package, a Seq2Seq or a functional Keras model. "
            f"Received: {type(model).__name__}"
        )
    if generates_tokens(model):
        default = GreedySearch() if isinstance(model, LanguageModel) else BeamSearch()
        strategy = default if strategy is None else strategy
        checked_strategy(strategy)
        if getattr(strategy, "seed", None) is not None:
            raise ValueError(
                "`seed` must not be given, because an exported sampling has its random numbers as the input `noise`. "
                f"Received: strategy={strategy}"
            )
        if not model.built:
            model.build()
    elif strategy is not None:
        raise ValueError(f"`strategy` requires a model that generates tokens. Received: strategy={strategy}")
    if not isinstance(prefix, bool):
        raise ValueError(f"`prefix` must be a bool: whether the programs take one. Received: prefix={prefix!r}")
    if prefix and (strategy is None or isinstance(model, LanguageModel)):
        raise ValueError(f"`prefix` requires a model of a source and a target. Received: {type(model).__name__}")
    if metric is not None and strategy is not None:
        raise ValueError("`metric` requires a model without a search. Received: metric and a strategy")
    model = model if is_float32(model) else copy_with_dtype(model, "float32")
    return Exported(model, None, None, strategy, metric=metric, takes_prefix=prefix)


def sample_batches(model, samples) -> list:
    """The inputs with which the programs of a model are verified: those that are given, or random ones.

    Args:
        model: the model.
        samples: the argument `sample_inputs` of `export_model`.
    """
    structure = input_structure(model)
    if samples is not None:
        samples = samples if isinstance(samples, list) and not isinstance(structure, list) else [samples]
        if not samples:
            raise ValueError("`sample_inputs` must contain an input. Received: []")
        return [checked_source(x, structure, "sample_inputs") for x in samples]
    vocab_size = getattr(model, "source_vocabulary", None)
    if vocab_size is None:
        return random_batches(structure, num_parameters=model.count_params())
    given = {"ids": model.special_ids, "num_parameters": model.count_params()}
    if not isinstance(model, LanguageModel):
        return random_source_batches(vocab_size, min(30, max_tokens(model.max_length)), **given)
    ids = model.special_ids
    batches = random_source_batches(vocab_size, min(30, max_tokens(model.max_length) - 1), **given)
    return [np.where(batch == ids.eos, ids.pad, batch) for batch in batches]  # Prompts do not end.
