"""Programs of a model alone, from and to tensors, without tokenizers: a search, or one call of the model."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.decoding import Sampling
from keras_transformer.export.format import Exported, Program, generates_tokens
from keras_transformer.export.verify.equality import compare
from keras_transformer.export.verify.keras_search import KerasSearch, PromptSearch
from keras_transformer.export.verify.outputs import KerasCall, compare_outputs
from keras_transformer.export.verify.quality import compare_likelihood
from keras_transformer.export.verify.samples import compare_samples
from keras_transformer.models import LanguageModel
from keras_transformer.models.base import ConfiguredModel


class Signature(NamedTuple):
    """The function of a program, with the names of its inputs and outputs: the arguments of `convert`."""

    function: Callable  # maps the tensors of the inputs to a tuple of those of the outputs
    specs: list  # `tf.TensorSpec` of each input
    inputs: dict[str, tuple]  # name -> shape, where axes that vary have a name
    outputs: dict[str, tuple]


def signature_of(exported: Exported) -> Signature:
    """The program of a model: the search of the strategy, or one call if there is no strategy."""
    model, strategy = exported.model, exported.strategy
    structure = input_structure(model)
    pack = functools.partial(keras.tree.pack_sequence_as, structure)

    if strategy is None:

        def run(*inputs):
            return tuple(keras.tree.flatten(model(pack(inputs), training=False)))

        output = model.outputs[0] if isinstance(model, keras.Sequential) else model.output
        return Signature(run, *_named(structure, _input_names(model)), _named(output, _output_names(model))[1])

    source_specs, inputs = _named(structure, _source_names(model))
    added, count = _search_inputs(exported), len(source_specs)

    def search(*tensors):
        given = dict(zip(added, tensors[count:], strict=True))
        found = exported.search(pack(tensors[:count]), strategy, **given)
        return tuple(keras.tree.flatten(found))  # Omits scores of tokens: `()`.

    if clash := {*inputs} & {*added}:
        raise ValueError(
            f"`{clash.pop()}` must not be the name of a source, because the program has such an input. "
            f"Received: {', '.join(inputs)}"
        )
    inputs |= added
    specs = [*source_specs, *specs_of(added, tf.int32, noise=tf.float32)]
    return Signature(search, specs, inputs, search_outputs(strategy))


def specs_of(shapes, dtype, **dtypes) -> list:
    """The `tf.TensorSpec`s of inputs by name, whose axes that vary have a name, with the dtypes of some of them."""
    return [
        tf.TensorSpec([n if isinstance(n, int) else None for n in shape], dtypes.get(name, dtype), name=name)
        for name, shape in shapes.items()
    ]


def _search_inputs(exported):
    """The inputs of a search beside the source: shapes by name."""
    inputs = {}
    if isinstance(exported.strategy, Sampling):
        inputs["noise"] = "batch", exported.strategy.n_samples, "noise_length"
    if exported.takes_prefix:
        inputs["prefix"] = "batch", "prefix_length"
    return inputs


def input_structure(model):
    """The input of the program of a model as a structure of symbolic tensors."""
    if generates_tokens(model):
        return model.source_spec
    return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def search_outputs(strategy) -> dict[str, tuple]:
    """Name -> shape of the outputs of a search."""
    outputs: dict[str, tuple] = {"tokens": ("batch", strategy.n_best, "length"), "scores": ("batch", strategy.n_best)}
    return outputs | ({"token_scores": outputs["tokens"]} if strategy.token_scores else {})


def _input_names(model):
    return [x.name for x in model.inputs]


def _output_names(model):
    if isinstance(model, ConfiguredModel):
        return ["logits"]
    if isinstance(model, keras.Sequential):  # It has no names of outputs.
        model = keras.Model(model.inputs, model.outputs)
    return model.output_names


def _source_names(model):
    count = len(keras.tree.flatten(model.source_spec))
    return [model.source_name] if count == 1 else [f"{model.source_name}_{i}" for i in range(count)]


def _named(structure, names):
    """The `tf.TensorSpec`s of a structure, and name -> shape.

    Names are the keys of the structure, joined by `_`. Tensors without a key have the given names.
    """
    tensors = keras.tree.flatten_with_path(structure)
    names = [
        "_".join(map(str, path)) if path and isinstance(path[-1], str) else str(name)
        for name, (path, _) in zip(names, tensors, strict=True)
    ]
    specs = [tf.TensorSpec(x.shape, x.dtype, name=name) for name, (_, x) in zip(names, tensors, strict=True)]
    return specs, {name: _shape(name, spec.shape) for name, spec in zip(names, specs, strict=True)}


def _shape(name, shape):
    """A shape with a name for each axis that varies."""
    axes = ["batch", f"{name}_length", *(f"{name}_axis_{i}" for i in range(2, len(shape)))]
    return tuple(axis if size is None else size for axis, size in zip(axes, shape, strict=False))


def model_metadata(exported: Exported) -> dict[str, str]:
    """The metadata of `model.onnx`: the configuration of a model of this package, and the search."""
    config = exported.model.get_config() if isinstance(exported.model, ConfiguredModel) else {}
    found = {name: config[name] for name in ("config", "num_classes", "pooling") if name in config}
    return {name: json.dumps(value) for name, value in {**found, **exported.recorded_search}.items()}


def model_programs(exported: Exported, name: str, client, is_approximate: bool) -> dict[str, Program]:
    """The program of a model in an export, with its verification; see `ExportFormat`."""
    if exported.strategy is None:
        verify = functools.partial(compare_outputs, is_approximate=is_approximate, metric=exported.metric)
        return {name: Program(client, None, verify, reference=KerasCall(exported.model))}
    verify = compare_likelihood if is_approximate else compare
    if isinstance(exported.strategy, Sampling):
        verify = functools.partial(compare_samples, is_approximate=is_approximate)
    search = keras_search(exported)
    program = SearchProgram(client.run, search.added_inputs)
    return {name: Program(program, exported.strategy, verify, reference=search)}


def prefix_programs(exported: Exported, name: str, client, verify: Callable) -> dict[str, Program]:
    """The program that is forced to write the token of a language, for a model that needs one.

    Args:
        exported: what the export is made from.
        name: name of the export.
        client: a `TokenTranslator` whose `search` takes a prefix.
        verify: see `Program`.
    """
    if exported.tokenizers is None or not exported.languages.forces_target:
        return {}
    languages = exported.languages
    first_tokens, longest = tuple(languages.target_tokens.values()), 3
    if exported.texts:  # A quantized model continues what it has learned, and not random tokens.
        first_tokens, longest = languages.direction().target_prefix, 1
    search = KerasSearch(
        exported.model,
        exported.strategy,
        text_constraints=exported.tokenizers[1].text_constraints,
        takes_prefix=True,
        first_tokens=first_tokens,
        longest_prefix=longest,
    )
    program = SearchProgram(client.search, search.added_inputs)
    return {f"{name} prefix": Program(program, exported.strategy, verify, reference=search)}


def keras_search(exported: Exported) -> KerasSearch:
    """The search of the Keras model with which a program of the model alone is compared."""
    search = PromptSearch if isinstance(exported.model, LanguageModel) else KerasSearch
    return search(exported.model, exported.strategy, takes_prefix=exported.takes_prefix)


class ModelProgram:
    """Runs a program on arrays.

    Args:
        run: maps a dict of the inputs to a dict of the outputs.
        signature: the `Signature`.
    """

    def __init__(self, run, signature: Signature):
        self._run, self._signature = run, signature

    def run(self, inputs, **others) -> list[np.ndarray]:
        """The outputs for a structure of arrays, and for other inputs by name."""
        names = [spec.name for spec in self._signature.specs]
        given = {**dict(zip(names, keras.tree.flatten(inputs), strict=False)), **others}
        arrays = {spec.name: np.asarray(given[spec.name], spec.dtype.as_numpy_dtype) for spec in self._signature.specs}
        found = self._run(arrays)
        return [found[name] for name in self._signature.outputs]


class SearchProgram:
    """Runs a program that is a search.

    Args:
        run: maps a source, and other inputs by name, to tokens and scores.
        added_inputs: maps a source to the other inputs by name; see `KerasSearch.added_inputs`.
    """

    def __init__(self, run: Callable, added_inputs: Callable):
        self._run, self._added_inputs = run, added_inputs

    def search(self, source, n_best=None) -> tuple[np.ndarray, np.ndarray]:
        """The hypotheses and their scores; see `TokenTranslator.search`."""
        tokens, scores, *_ = self._run(source, **self._added_inputs(source))
        return tokens, scores


def load_onnx_program(path: Path, signature: Signature) -> ModelProgram:
    """Loads `model.onnx`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return ModelProgram(lambda inputs: dict(zip(names, session.run(names, inputs), strict=True)), signature)


def load_saved_model_program(path: Path, signature: Signature) -> ModelProgram:
    """Loads the signature `serving_default` of a SavedModel."""
    loaded = tf.saved_model.load(str(path))
    serve = loaded.signatures["serving_default"]

    def run(inputs, loaded=loaded):  # The signature depends on the loaded object.
        found = serve(**{name: tf.constant(x) for name, x in inputs.items()})
        return {name: x.numpy() for name, x in found.items()}

    return ModelProgram(run, signature)


def write_model_program(exported: Exported, path: Path) -> None:
    """Writes the program of a model as a SavedModel with the signature `serving_default`."""
    function, specs, _, outputs = signature_of(exported)
    module = tf.Module()
    # Tracked, so that the SavedModel contains them. The type stubs of TensorFlow reject attributes of modules.
    module.weights = [variable.value for variable in exported.model.variables]  # pyright: ignore[reportAttributeAccessIssue]
    named = tf.function(lambda *args: dict(zip(outputs, function(*args), strict=True)), input_signature=specs)
    tf.saved_model.save(module, str(path), signatures=named)
