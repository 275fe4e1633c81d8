"""Export to ONNX: `model.onnx` with the whole search, and `encoder.onnx` and `decoder.onnx` for other searches."""

import contextlib
import functools
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import onnx
import tensorflow as tf

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export.format import Exported, Program
from keras_transformer.export.model_copy import copy_with_dtype
from keras_transformer.export.onnx.attention import fold_scales, simplify_masks
from keras_transformer.export.onnx.cleanup import fast_cleanup
from keras_transformer.export.onnx.external_weights import WeightsFile
from keras_transformer.export.onnx.fusions import (
    avoid_large_transposes,
    fuse_layer_normalizations,
    merge_products,
    simplify_gathers,
)
from keras_transformer.export.onnx.graphs import captured
from keras_transformer.export.onnx.greedy_decoder import OnnxGreedySearch
from keras_transformer.export.onnx.initializers import arrays_outside, initializer
from keras_transformer.export.onnx.loops import hoist_loop_invariants, sink_constants
from keras_transformer.export.onnx.quantization import quantize_matrices
from keras_transformer.export.onnx.step_graphs import alignment, decoder, encoder, text_decoder
from keras_transformer.export.onnx.text_decoder import OnnxTextDecoder
from keras_transformer.export.onnx.translator import OnnxTranslator
from keras_transformer.export.programs import (
    load_onnx_program,
    model_metadata,
    model_programs,
    prefix_programs,
    signature_of,
)
from keras_transformer.export.verify.attention import compare_attention
from keras_transformer.export.verify.equality import compare
from keras_transformer.export.verify.keras_search import ContinuationSearch
from keras_transformer.export.verify.quality import compare_likelihood
from keras_transformer.models import LanguageModel
from keras_transformer.storage.model_directory import ModelDirectory, export_name

_OPSET = 18


def write_onnx(exported: Exported, path: Path, quantize: str | None = None) -> None:
    """Writes `model.onnx`, the other graphs of `graphs`, their weights, and the tokenizers.

    Weights become int8 with `quantize="int8"`; weights and activations become float16 with `quantize="float16"`.
    """
    path.mkdir()
    if exported.tokenizers is not None:
        ModelDirectory(path).write_tokenizers(exported.directory.tokenizer_models())
    if quantize == "float16":
        exported = exported._replace(model=copy_with_dtype(exported.model, "float16"))
    weights = WeightsFile(path)
    for name in graphs(exported):
        with arrays_outside():
            proto = make_graph(name, exported, quantize)
            weights.take_from(proto)
        onnx.save(proto, path / f"{name}.onnx")
        onnx.checker.check_model(path / f"{name}.onnx", full_check=True)


def programs(path: Path, exported: Exported, quantize: str | None = None) -> dict[str, Program]:
    """The programs of an export; see `ExportFormat`."""
    name, verify = export_name("onnx", quantize), compare_likelihood if quantize else compare
    if exported.tokenizers is None:
        client = load_onnx_program(path / "model.onnx", signature_of(exported))
        found = model_programs(exported, name, client, is_approximate=quantize is not None)
        if "decoder" not in graphs(exported):
            return found
        search = ContinuationSearch(exported.model, GreedySearch(extra_length=exported.strategy.extra_length))
        client = OnnxTextDecoder(path, exported.strategy.extra_length)
        return {**found, f"{name} decoder": Program(client, search.strategy, verify, reference=search)}
    strategy = exported.strategy
    greedy = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=strategy.extra_length)
    verify_attention = functools.partial(compare_attention, is_approximate=quantize is not None)
    translator = OnnxTranslator(path, protect="off")
    translator.release_sessions()  # Each program loads its own.
    searches = {
        name: Program(translator, strategy, verify),
        **prefix_programs(exported, name, translator, verify),
        f"{name} alignment": Program(translator, strategy, verify_attention),
    }
    return {
        # Only the sessions of one program at a time are in memory.
        **{title: program._replace(release=translator.release_sessions) for title, program in searches.items()},
        f"{name} encoder and decoder": Program(
            OnnxGreedySearch(path, strategy.extra_length), greedy, verify, has_search=False
        ),
    }


def graphs(exported: Exported) -> dict[str, Callable]:
    """The graphs of an export by name: functions that make their `Signature`."""
    found: dict[str, Callable] = {"model": signature_of}
    if exported.tokenizers is not None:
        if exported.languages.forces_target:
            found["model_prefix"] = lambda exported: signature_of(exported._replace(takes_prefix=True))
        return {**found, "encoder": encoder, "decoder": decoder, "alignment": alignment}
    model = exported.model
    if isinstance(model, LanguageModel) and model.takes_several_tokens:
        return {**found, "decoder": text_decoder}
    return found


def make_graph(name: str, exported: Exported, quantize: str | None = None) -> onnx.ModelProto:
    """Makes one of `graphs`, with its weights and with the metadata that `OnnxTranslator` reads."""
    proto = convert(*graphs(exported)[name](exported), exported.model.weights)
    if quantize == "int8":
        quantize_matrices(proto.graph)
    sink_constants(proto.graph)
    avoid_large_transposes(proto.graph)
    metadata = model_metadata(exported)
    if exported.tokenizers is not None:
        hashes = zip(("source", "target"), exported.tokenizers, strict=True)
        metadata |= {f"{side}_tokenizer_sha256": tokenizer.sha256 for side, tokenizer in hashes}
    onnx.helper.set_model_props(proto, metadata)
    return proto


def convert(function, signature, inputs, outputs, variables=()) -> onnx.ModelProto:
    """Converts a function to ONNX and optimizes the graph.

    Args:
        function: maps tensors to a tuple of tensors.
        signature: a named `tf.TensorSpec` for each input.
        inputs: shapes of the inputs by name, in order. Axes with a name are dynamic.
        outputs: shapes of the outputs, likewise.
        variables: Keras variables. Those that the function uses become initializers.

    Returns:
        The model, with its weights.
    """
    weights = {f"weight_{i}": variable for i, variable in enumerate(variables)}
    proto = _converted(function, signature, outputs, weights)
    used = {*captured(proto.graph)}
    for name, variable in weights.items():
        if name in used:
            proto.graph.initializer.append(initializer(np.asarray(tf.convert_to_tensor(variable.value)), name))
    hoist_loop_invariants(proto.graph)
    fuse_layer_normalizations(proto.graph)
    simplify_gathers(proto.graph)
    fold_scales(proto.graph)
    merge_products(proto.graph)
    simplify_masks(proto.graph)
    _describe(proto.graph.input, inputs)
    _describe(proto.graph.output, outputs)
    proto.producer_name, proto.producer_version = "keras-transformer", f"keras {keras.__version__}"
    return proto


def _converted(function, signature, outputs, weights):
    """The tf2onnx conversion. The weights are inputs, because tf2onnx copies constants dozens of times."""
    import tf2onnx
    from keras.src.export.tf2onnx_lib import patch_tf2onnx  # No public function makes tf2onnx work with NumPy 2.

    def program(*args):
        values = zip(weights.values(), args[len(signature) :], strict=True)
        with keras.StatelessScope(state_mapping=values):
            # A dictionary names the outputs. tf2onnx sorts its keys.
            return dict(zip(outputs, function(*args[: len(signature)]), strict=True))

    specs = [tf.TensorSpec(variable.shape, variable.dtype, name=name) for name, variable in weights.items()]
    all_specs = [*signature, *specs]
    named = tf.function(program, input_signature=all_specs)
    with warnings.catch_warnings(), _without_fusion_messages(), fast_cleanup():
        warnings.simplefilter("ignore", FutureWarning)
        patch_tf2onnx()
        # By default tf2onnx copies the graph before each pass, in case the pass fails: over 40 % of the time.
        os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "false")
        proto, _ = tf2onnx.convert.from_function(
            named, input_signature=all_specs, opset=_OPSET, custom_op_handlers=_HANDLERS
        )
    return proto


@contextlib.contextmanager
def _without_fusion_messages():
    """Suppresses messages of tf2onnx about what it does not fuse: products in float16, and recurrent layers."""

    def is_other(record):
        return not any(words in record.getMessage() for words in ("Gemm rewriter", "must be Const"))

    loggers = [logging.getLogger(name) for name in (None, "tf2onnx.tfonnx")]
    for logger in loggers:
        logger.addFilter(is_other)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_other)


def _select(context, node, name, arguments):
    """Writes an ONNX `Where`. tf2onnx would write a sum of products."""
    node.type = "Where"


def _erfc(context, node, name, arguments):
    """Writes 1 - Erf. ONNX has no Erfc."""
    inputs, outputs = node.input[:], node.output[:]
    shapes, dtypes = node.output_shapes, node.output_dtypes
    context.remove_node(name)
    one = context.make_const(f"{name}/one", np.ones((), onnx.helper.tensor_dtype_to_np_dtype(dtypes[0])))
    erf = context.make_node("Erf", inputs)
    operands = [one.output[0], erf.output[0]]
    context.make_node("Sub", operands, name=name, outputs=outputs, shapes=shapes, dtypes=dtypes)


#: Handlers of operators that tf2onnx converts badly or not at all.
_HANDLERS = {"SelectV2": (_select, []), "Erfc": (_erfc, [])}


def _describe(values, shapes):
    """Sets the order of graph inputs or outputs, and the names of their axes."""
    by_name = {value.name: value for value in values}
    ordered = [
        onnx.helper.make_tensor_value_info(name, by_name[name].type.tensor_type.elem_type, shape)
        for name, shape in shapes.items()
    ]
    del values[:]
    values.extend(ordered)
